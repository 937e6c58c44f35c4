"""Rules that hold for the whole tree."""

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
    assert catchers == ["carico_agent/lib/supervise/tasks.py"]


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


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((TREE / folder).rglob("*.py")) if "proto" not in path.parts]


def test_one_name_is_one_class() -> None:
    """Only `Plugin` is many: the class of every plugin is called so."""
    places: dict[str, list[str]] = {}
    for path in python_files("carico_agent", "plugins", "lab"):
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(TREE)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name != "Plugin"} == {}


def test_nothing_but_tests_imports_tests() -> None:
    importers = [
        str(path.relative_to(TREE))
        for path in python_files("carico_agent", "lab")
        if re.search(r"^\s*(from|import) tests\b", path.read_text(), re.MULTILINE)
    ]
    assert importers == []


def test_every_module_of_the_lab_can_be_imported() -> None:
    """Nothing else imports some of them, so a renamed function would be noticed by nobody."""
    modules = [".".join(path.relative_to(TREE).with_suffix("").parts) for path in python_files("lab")]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    wanted = [name.removesuffix(".__init__") for name in modules if not name.endswith(".__main__")]
    assert len(wanted) > 60
    result = subprocess.run([sys.executable, "-c", code, *wanted], cwd=TREE, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_product_readme_names_files_that_exist() -> None:
    named = [
        (readme, name)
        for readme in sorted(TREE.glob("carico_agent/*/README.md"))
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", readme.read_text())
    ]
    assert len(named) > 60
    lost = [(readme.parent.name, name) for readme, name in named if not exists(readme.parent, name)]
    assert lost == []


def exists(product: Path, name: str) -> bool:
    """Below the product, also without the folder that the sentence has named before, or from the root of the tree."""
    return (TREE / name).exists() or next(product.rglob(name.rstrip("/")), None) is not None


def test_a_comment_names_modules_that_exist() -> None:
    """`folder/module.py` in a comment or docstring is the end of a path in the tree."""
    modules = {str(path.relative_to(TREE)) for path in python_files("carico_agent", "plugins", "lab", "tests")}
    foreign = {"grpc/_common.py"}
    """Files of other projects."""
    named = [
        (str(path.relative_to(TREE)), name)
        for path in python_files("carico_agent", "plugins")
        for name in re.findall(r"(?<![\w/])\w+(?:/\w+)*/\w+\.py\b", path.read_text())
    ]
    assert len(named) > 40
    assert [
        (path, name)
        for path, name in named
        if name not in foreign and not any(f"/{module}".endswith(f"/{name}") for module in modules)
    ] == []


def test_no_package_host_is_named() -> None:
    """Packages come from where the machine itself gets them: what builds and installs names no host on the internet."""
    scripts = [
        *(path for folder in ("tests", "lab", "deploy", "carico_agent", ".ci") for path in (TREE / folder).rglob("*")),
        *(TREE / name for name in ("Makefile", "setup.cfg", "pyproject.toml")),
    ]
    named, read = [], 0
    for path in scripts:
        builds = path.suffix in (".sh", ".txt", ".cfg", ".toml") or path.name in ("Makefile", "Containerfile", "run")
        if not builds or not path.is_file():
            continue
        read += 1
        named += [(path.name, host) for host in re.findall(r"https?://([\w-]+(?:\.[\w-]+)+)", path.read_text())]
    assert read >= 10
    assert [(name, host) for name, host in named if not host.startswith("127.")] == []
