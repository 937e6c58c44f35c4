"""The rules of the house that a test can check."""

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parent.parent


def test_catching_everything_has_one_address() -> None:
    catchers = [
        str(path.relative_to(TREE))
        for path in sorted(TREE.glob("carico_agent/**/*.py"))
        if re.search(r"except\s+(Base)?Exception\b|except\s*:", path.read_text())
    ]
    assert catchers == ["carico_agent/supervise/tasks.py"]


def test_the_client_imports_nothing_heavy() -> None:
    heavy = {"numpy", "grpc", "aiohttp", "google", "psutil"}
    code = f"import sys, carico_agent.client\nprint(sorted({{m.split('.')[0] for m in sys.modules}} & {heavy}))"
    result = subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_core_is_numpy_only() -> None:
    code = (
        "import sys, numpy\nbefore = set(sys.modules)\nimport carico_agent.core\n"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('carico_agent')))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True)
    assert "aiohttp" not in result.stdout
    assert "grpc" not in result.stdout
