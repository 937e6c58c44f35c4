"""What a newcomer meets: completion, the first commands of `--help`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carico_agent.cli import COMMANDS, EXAMPLES, MODULES, main, parser
from carico_agent.command import typed
from carico_agent.node.commands.demo import what_next

TREE = Path(__file__).parent.parent.parent


def complete(script: str, *typed: str) -> set[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in typed)
    offered = "_shtab_carico; printf '%s\\n' \"${COMPREPLY[@]}\""
    code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(typed) - 1}; {offered}"
    result = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_bash_completion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert complete(script, "carico", "") >= {name.replace("_", "-") for name in COMMANDS}
    assert complete(script, "carico", "ins") == {"install"}
    assert complete(script, "carico", "install", "--t") == {"--tuning"}
    assert complete(script, "carico", "completion", "z") == {"zsh"}
    (tmp_path / "config.toml").touch()
    assert complete(script, "carico", "agent", "--config", f"{tmp_path}/con") == {f"{tmp_path}/config.toml"}


def test_zsh_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef carico\n")
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=script, text=True, check=True)


def test_fish_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^complete -c carico .*\b{name.replace('_', '-')}\b", script, re.MULTILINE), name
    if shutil.which("fish"):
        subprocess.run(["fish", "-n"], input=script, text=True, check=True)


def test_examples_of_the_help_are_understood() -> None:
    lines = re.findall(r"^  carico (.*?)(?:\s{2,}.*)?$", EXAMPLES, re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        parser().parse_args(line.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_examples_that_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name.replace("_", "-"), "--help"])
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    shown = examples.partition("\n\n")[0]
    lines = re.findall(r"^  (?:source <\()?carico (.*?)(?:\)|\s{2,}|[|>]|$)", shown, re.MULTILINE)
    assert lines
    for line in lines:
        parsed = parser().parse_args(line.split())
        assert parsed.command == name.replace("_", "-")


def test_a_command_does_not_bring_the_others_into_memory():
    """A daemon would keep them: a megabyte."""
    code = "import sys; from carico_agent.cli import main; main(['print-config']); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    commands = {name for name, module in MODULES.items() if module in loaded}
    assert commands == {"print_config"}


@pytest.mark.parametrize(
    ("called", "path", "shown"),
    [
        ("{here}/bin/carico", "{here}/bin:/usr/bin", "carico"),  # typed as `carico`: the shell has found it in the PATH
        (".venv/bin/carico", "{here}/bin:/usr/bin", ".venv/bin/carico"),  # `make demo`, whose PATH is not the reader's
        ("{here}/bin/carico", "/usr/bin", "{here}/bin/carico"),
        ("{here}/carico_agent/__main__.py", "/usr/bin", f"{sys.executable} -m carico_agent"),
    ],
)
def test_what_to_do_next_can_be_typed(
    called: str, path: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 36: `make demo` ended with commands that the reader's shell did not find."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/carico").touch(0o755)
    monkeypatch.setattr(sys, "argv", [called.format(here=tmp_path), "demo"])
    monkeypatch.setenv("PATH", path.format(here=tmp_path))
    assert f"\n  {shown.format(here=tmp_path)} agent " in what_next(typed())
