"""What README and docs/ show works: every `sh` block is run, every `python` block too, against a real agent."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.support.commands_page import page
from tests.conftest import TREE, AgentProcess

README = (TREE / "README.md").read_text()
PATHS = {path.name: path for path in [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]}
PAGES = {name: path.read_text() for name, path in PATHS.items()}
ALL = "\n".join(PAGES.values())
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", ALL, re.MULTILINE | re.DOTALL)
STAND_INS = {
    "make run": "make -n run",  # would install and then run for ever; the next two are what it does
    "make demo": "make -n demo",  # tests/commands/test_demo.py runs it
    "make test": "make -n test",
    "python3 -m venv /opt/carico && /opt/carico/bin/pip install .": (
        f"{shlex.quote(sys.executable)} -m pip install -q --no-deps --no-build-isolation -t there ./source"
    ),
    "/opt/carico/bin/carico agent": "timeout -s INT 5 carico agent --socket own.sock",
    "sudo carico install --systemd": "carico install --systemd --root root",
    "carico install --systemd --dry-run": "carico install --systemd --dry-run --root root",  # this tree may be in /tmp
}
"""What would change this machine, or never end, and what is run instead."""


@pytest.fixture
def running(start_agent: Callable[..., AgentProcess], roomy: list[str]) -> AgentProcess:
    process = start_agent(*roomy)
    process.wait(lambda agent: agent.status()["available"] >= 5)
    return process


def commands() -> list[str]:
    lines = [line for workload, block in BLOCKS if workload == "sh" for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def test_every_command(running: AgentProcess, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "source").mkdir(parents=True)
    for name in ("carico_agent", "plugins", "systemd"):  # builds elsewhere
        shutil.copytree(TREE / name, here / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, here / "source" / name)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CARICO_SOCKET": running.socket,
        "STATE_DIRECTORY": str(here / "state"),
    }
    shown = commands()
    assert len(shown) >= 10
    assert set(STAND_INS) <= set(shown)
    for command in shown:
        wanted = STAND_INS.get(command, command).replace("/run/carico/agent.sock", running.socket)
        result = subprocess.run(
            ["bash", "-c", wanted],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            cwd=TREE if wanted.startswith("make") else here,
        )
        fine = (0, 124) if wanted.startswith("timeout") else (0,)
        assert result.returncode in fine, f"{command}:\n{result.stdout}{result.stderr}"
    assert (here / "there/carico_units/carico-agent.service").exists()
    assert (here / "root/etc/systemd/system/carico-agent.service").exists()


def test_the_readme_in_the_shell_that_its_reader_has(running: AgentProcess, tmp_path: Path) -> None:
    """Issue 36: `make run` in one terminal, all else in a second one: `carico` is not in its PATH, and the socket is
    where an agent of an ordinary user has it."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    runtime = tmp_path / "runtime"
    (runtime / "carico").mkdir(parents=True)
    (runtime / "carico/agent.sock").symlink_to(running.socket)
    (first, then), (asked,) = (
        [
            block
            for language, block in re.findall(r"^```(\w+)\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
            if language == "sh"
        ]
        for part in (
            README[README.index("## First commands") : README.index("![")],
            README[README.index("## Ask it") :],
        )
    )
    assert "make run" in first
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime), "LANG": "C.UTF-8"}
    shell = ["bash", "-e", "-c", then + asked.replace("carico fit shop/web", "carico fit shop/web || [ $? = 1 ]")]
    result = subprocess.run(shell, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Pod-Capacity" in result.stdout
    assert "× shop/web" in result.stdout
    assert '"pod_capacity"' in result.stdout


def test_no_page_names_a_package_that_is_not_published() -> None:
    """Issue 36: until there is a release, pip finds carico in a folder, a wheel or a Git repository only."""
    sources = [path.read_text() for path in (TREE / "carico_agent").rglob("*.py")]
    assert not re.findall(r"pip install (?:-\S+ )*carico\S*", README + "".join(sources))


def test_every_python_example(running: AgentProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARICO_SOCKET", running.socket)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the work of an example takes a minute
    examples = [block for workload, block in BLOCKS if workload == "python"]
    assert len(examples) >= 2
    for code in examples:
        exec(compile(code, "docs", "exec"), {})


def test_every_test_it_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(::)?(\w*)`", ALL)
    assert len(named) > 60
    for path, _, name in named:
        text = (TREE / path).read_text()
        assert not name or f"def {name}(" in text, f"{path}::{name}"


FAULTS = (
    "containerd killed",
    "containerd hangs",
    "aggregator gone",
    "API server gone",
    "disk full",
    "state folder read-only",
    "clock set by an hour",
    "suspended",
    "PSI switched off",
    "cgroup tree vanishes",
    "`kill -9`",
    "500 Pods at once",
    "file descriptors exhausted",
    "broken configuration on reload",
    "kernel files",
    "nonsense on the socket",
    "gRPC messages",
    "one user reserves all it can",
    "plugin, disk or runtime hangs",
    "while plugins write",
    "a journal that names other files",
    "run by root",
    "`skip_names`",
    "a day of churn",
)


def test_every_fault_stands_in_the_table_with_its_test() -> None:
    """Each row names a test, and the test above looks whether that one exists."""
    table = PAGES["faults.md"]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert all(len(row) == 3 and "`tests/" in row[2] for row in rows), [row for row in rows if "`tests/" not in row[-1]]
    for fault in FAULTS:
        assert any(fault in row[0] for row in rows), fault


def test_every_path_of_the_api_is_named(running: AgentProcess) -> None:
    described = running.client().request("GET", "/v1/openapi.json")["paths"]
    for path in described:
        assert path.replace("{id}", "ID").replace("{path}", "NAME") in PAGES["api.md"], path


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"`((?:deploy|plugins|lab|systemd|carico_agent)/[\w./]*)`", ALL)
    assert len(named) > 30
    for name in named:
        assert (TREE / name).exists(), name


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    assert len(README.splitlines()) <= 120
    for name in PAGES.keys() - {"README.md"}:
        assert f"({PATHS[name].relative_to(TREE)})" in README, name


def test_every_link_leads_somewhere() -> None:
    links = [(name, target) for name, text in PAGES.items() for target in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert len(links) > 20
    for name, target in links:
        assert (PATHS[name].parent / target).exists(), f"{name}: {target}"


def test_every_command_and_package_is_listed() -> None:
    assert (TREE / "docs/commands.md").read_text() == page(), "python -m lab.support.commands_page renews it"
    packages = {path.parent.name for path in (TREE / "carico_agent").glob("*/__init__.py")}
    for package in packages:
        assert f"`carico_agent/{package}/`" in PAGES["architecture.md"], package


def test_the_layers_are_the_same_everywhere() -> None:
    setup = configparser.ConfigParser()
    setup.read(TREE / "setup.cfg")
    layers = re.sub(r"[()]", "", setup["importlinter:contract:products"]["layers"]).split("\n")
    wanted = [" | ".join(sorted(layer.split(" | "))) for layer in layers if layer]
    for text in (PAGES["architecture.md"], (TREE / "CONTRIBUTING.md").read_text()):
        (block,) = re.findall(r"^```\n(cli\b.*?)^```", text, re.MULTILINE | re.DOTALL)
        shown = [
            " | ".join(sorted(part.strip() for part in layer.split("|"))) for layer in re.split(r">|\n", block.strip())
        ]
        assert [layer.strip() for layer in shown] == wanted
