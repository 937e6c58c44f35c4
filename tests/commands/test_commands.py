"""The command line: what it prints, what it refuses, and its exit codes."""

import json
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.settings import OFTEN_CHANGED, PRODUCTS, Settings, example

TREE = Path(__file__).parent.parent.parent
TRACE = str(TREE / "tests/golden/bursts.trace.gz")


def test_print_config_is_the_example_in_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-config"]) == 0
    printed = capsys.readouterr().out
    assert printed == example() == (TREE / "config.example.toml").read_text()


def test_the_example_fits_on_three_screens_and_shows_what_people_change() -> None:
    text = (TREE / "config.example.toml").read_text()
    shown = tomllib.loads(text)
    assert len(text.splitlines()) <= 3 * 60
    assert 40 <= sum(len(section) for section in shown.values()) <= 50
    assert shown.keys() == OFTEN_CHANGED.keys()
    assert all(shown[name].keys() == set(names) for name, names in OFTEN_CHANGED.items())


def test_print_config_of_all_products_has_every_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    printed = ""
    for product in PRODUCTS:
        assert main(["print-config", product]) == 0
        printed += capsys.readouterr().out
    found = tomllib.loads(printed)
    assert found.keys() == {section.name for section in fields(Settings)}
    for name, section in found.items():
        assert section.keys() == {one.name for one in fields(getattr(Settings(), name))}
    assert main(["print-config", "all"]) == 0
    whole = tmp_path / "c.toml"
    whole.write_text(capsys.readouterr().out)
    assert tomllib.loads(whole.read_text()) == found and main(["check-config", str(whole)]) == 0


def test_print_config_names_the_products_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["print-config", "agnet"])
    assert ended.value.code == 2 and "'agent'" in capsys.readouterr().err


def test_the_example_is_a_valid_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(TREE / "config.example.toml")]) == 0


def test_check_config_names_every_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[sampling]\nperod_s = 1\nio = "yes"\n[nodee]\n')
    assert main(["check-config", str(config)]) == 1
    result = capsys.readouterr().err
    assert "sampling.perod_s: unknown key, did you mean period_s?" in result
    assert "sampling.io: true or false is expected, not 'yes'" in result
    assert "nodee: unknown key, did you mean node?" in result


def test_an_agent_with_broken_settings_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[sampling]\nperiod_s = 0\n")
    assert main(["agent", "--config", str(config), "--socket", str(tmp_path / "s")]) == 2
    assert "not between 0.02 and 10" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_status_without_an_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--socket", str(tmp_path / "none.sock")]) == 1
    assert "is `carico agent` running?" in capsys.readouterr().err


def test_doctor_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert code == int(any(f["state"] == "missing" for f in findings))
    assert {"python", "cpu", "memory", "cgroups", "socket"} <= {f["name"] for f in findings}
    assert all(f["remedy"] for f in findings if f["state"] != "ok")


def test_doctor_on_a_node_without_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[node]\nroot = "{tmp_path}"\n[socket]\npath = "{tmp_path}/s"\n')
    assert main(["doctor", "--config", str(config)]) == 1
    result = capsys.readouterr().out
    assert "missing  cpu" in result
    assert "→" in result


CARICO = ["replay", TRACE, "--method", "carico"]


@pytest.mark.parametrize("arguments", [["replay", TRACE], [*CARICO, "--json"], [*CARICO, "--estimator", "paper-joint"]])
def test_replay(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 60
    assert "pod_capacity" in json.loads(lines[-1]) if "--json" in arguments else "Pod-Capacity" in lines[-1]


def test_replay_complains_about_what_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("hello\n")
    assert main(["replay", str(tmp_path / "x")]) == 1
    assert main(["replay", str(tmp_path / "missing")]) == 1
    assert main(["replay", TRACE, "--estimator", "tea-leaves"]) == 2
    assert main(["replay", TRACE, "--estimator", "paper-dual"]) == 2
    result = capsys.readouterr().err
    assert "line 1" in result
    assert "tea-leaves: known are" in result
    assert 'paper-dual belongs to the method carico and changes nothing with method = "measured"' in result


def test_each_method_and_estimator_gives_its_own_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """With Pods measured every estimator once gave the default's answer, byte for byte."""
    answers = {}
    for chosen in ([], ["--method", "carico"], ["--method", "carico", "--estimator", "paper-joint"]):
        assert main(["replay", TRACE, "--json", *chosen]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        answers[tuple(chosen)] = [row["pod_capacity"] for row in rows]
        assert all((row["capacity"] is not None) == bool(chosen) for row in rows[5:])
    assert len({str(numbers) for numbers in answers.values()}) == 3


def test_wrong_usage_exits_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no-such-command"])
    assert ended.value.code == 2


def test_module_and_help() -> None:
    result = subprocess.run([sys.executable, "-m", "carico_agent", "--help"], cwd=TREE, capture_output=True, text=True)
    assert result.returncode == 0
    for word in ("agent", "status", "top", "doctor", "replay", "examples:", "exit codes"):
        assert word in result.stdout


def test_commands_that_only_ask_import_nothing_heavy() -> None:
    code = (
        "import sys, carico_agent.cli as c\nc.main(['status', '--socket', '/nonexistent/s'])\n"
        "print(sorted(m for m in ('numpy', 'grpc', 'aiohttp') if m in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
