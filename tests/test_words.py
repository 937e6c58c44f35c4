"""Words that must not come back in the docs, the help texts and the settings: they hide the actor, or name two things.

`kind` is a Kubernetes word. What it meant here, the Pods of one template, is a *workload*.
"""

import ast
import re
from pathlib import Path

import pytest

from carico_agent.cli import main
from tests.conftest import TREE

ACTORS = re.compile(r"\b(nobody|somebody|whoever|for ever|forever)\b", re.IGNORECASE)
"""Name the actor instead: the client, the watch, the kubelet, another controller."""
KIND = re.compile(r"\bkinds?\b", re.IGNORECASE)
KUBERNETES_KIND = {
    re.compile(r"^\s*(- )?kind: [A-Z]"): "a manifest",
    re.compile(r"--bound-object-kind "): "an option of `kubectl create token`",
    re.compile(r"check\s+kind and name\b|^kind and name before you paste"): "the object that `kubectl patch` changes",
    re.compile(r"\bknobs/kinds\.py\b"): "a module: types of cgroup files, which are no workloads",
}
"""Where `kind` is Kubernetes' own, or part of a name, and what it is there."""


def texts() -> dict[str, str]:
    """Everything that a user reads, by where it stands."""
    pages = [*(TREE / "docs").rglob("*.md"), *(TREE / "carico_agent").glob("*/README.md")]
    pages += [*(TREE / "plugins").glob("*/README.md"), *(TREE / "carico_agent/lib/page/static").glob("*.html")]
    pages += [TREE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config.example.toml")]
    pages += (TREE / "deploy").rglob("README.md")
    return {str(path.relative_to(TREE)): path.read_text() for path in pages}


def helps() -> list[str]:
    parts = (TREE / "carico_agent").glob("*/commands/[a-z]*.py")
    return sorted(path.stem.replace("_", "-") for path in parts)


def hidden_actors(text: str) -> list[str]:
    return [line for line in text.splitlines() if ACTORS.search(line)]


def wrong_kinds(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if KIND.search(line))
    return [line for line in lines if not any(allowed.search(line) for allowed in KUBERNETES_KIND)]


@pytest.mark.parametrize("name", sorted(texts()))
def test_a_page_names_its_actors_and_says_workload(name: str) -> None:
    text = texts()[name]
    assert not hidden_actors(text)
    assert not wrong_kinds(text)


@pytest.mark.parametrize("name", sorted(name for name in texts() if name.startswith("docs/")))
def test_a_page_opens_with_what_its_reader_can_do_after_it(name: str) -> None:
    title, _, opening = texts()[name].splitlines()[:3]
    assert title.startswith("# ")
    assert opening.startswith("After this page you can ")


@pytest.mark.parametrize("command", helps())
def test_a_help_text_names_its_actors_and_says_workload(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith("usage: carico")
    assert not hidden_actors(printed)
    assert not wrong_kinds(printed)


def messages(code: str) -> list[str]:
    """The strings of a module without its docstrings: errors, log lines, what a command prints."""
    tree = ast.parse(code)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said)
    return [node.value for node in found if isinstance(node.value, str)]


@pytest.mark.long
def test_every_message_names_its_actor() -> None:
    modules = [path for folder in ("carico_agent", "plugins") for path in (TREE / folder).rglob("*.py")]
    assert len(modules) > 300
    shown = {path: messages(path.read_text()) for path in modules if not path.name.startswith("test_")}
    assert [f"{path}: {text}" for path, texts in shown.items() for text in texts if hidden_actors(text)] == []
    assert messages('def f():\n    """nobody"""\n    return "somebody"') == ["somebody"]


NOT_YET = "carico_agent/burst/"
"""A folder that still has older names."""
OLD_NAMES = re.compile(
    r"^_?(ledgers?|wish(es)?|asks|seal|boards?|pulse|look|look_(at|again|around|after|for)\w*|\w*_(ledger|board|pulse)"
    r"|most_(?!common|allocated)\w+|least_(?!left|allocated|squares)\w+)$"
)
"""Say what it is instead: table, request, questions, read, scan, poll, refresh, max_x, min_x."""
STILL_THERE = {
    ("carico_agent/extender", "ledger"): "the table of places by Pod (placement/ledger.py)",
}


def modules() -> list[Path]:
    found = [path for folder in ("carico_agent", "plugins") for path in (TREE / folder).rglob("*.py")]
    return [path for path in found if not path.name.startswith("test_") and "_pb2" not in path.name]


@pytest.mark.parametrize("folder", sorted({str(path.parent.relative_to(TREE)) for path in modules()}))
def test_comments_and_docstrings_name_their_actors(folder: str) -> None:
    found = [path for path in modules() if str(path.parent.relative_to(TREE)) == folder]
    assert [f"{path.name}: {line}" for path in found for line in hidden_actors(path.read_text())] == []


def names(code: str) -> set[str]:
    """Everything that a module names itself: functions, classes, arguments, variables, attributes."""
    tree = ast.walk(ast.parse(code))
    kept: set[str] = set()
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kept.add(node.name)
        elif isinstance(node, ast.arg):
            kept.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            kept.add(node.id if isinstance(node, ast.Name) else node.attr)
    return kept


def test_old_names_do_not_come_back() -> None:
    found = {
        (str(path.parent.relative_to(TREE)), name)
        for path in modules()
        if not str(path.relative_to(TREE)).startswith(NOT_YET)
        for name in names(path.read_text())
        if OLD_NAMES.match(name)
    }
    assert found == set(STILL_THERE)
    assert names("class A:\n    def look(self, wish): self.ledger = wish") == {"A", "look", "self", "wish", "ledger"}


def test_all_settings_name_their_actors_and_say_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-config", "all"]) == 0
    printed = capsys.readouterr().out
    assert not hidden_actors(printed)
    assert not wrong_kinds(printed)


@pytest.mark.parametrize(
    "line", ["What nobody confirms expires.", "It runs for ever.", "Whoever binds", "of that kind", "by kinds"]
)
def test_the_list_is_not_blind(line: str) -> None:
    assert hidden_actors(line) or wrong_kinds(line)


@pytest.mark.parametrize("line", ["kind: Deployment", "  kind: Job", "--bound-object-kind Node", "the body knows"])
def test_kubernetes_own_words_are_allowed(line: str) -> None:
    assert not hidden_actors(line) and not wrong_kinds(line)


def test_every_exception_is_still_needed() -> None:
    everything = "\n".join(texts().values())
    for allowed, reason in KUBERNETES_KIND.items():
        assert any(allowed.search(line) for line in everything.splitlines()), reason
