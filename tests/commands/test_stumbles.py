"""Issue 36: what made new users stumble: tracebacks, silence, messages that name neither cause nor remedy."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.node.plugin_host.journal import Journal
from tests.conftest import TREE, AgentProcess

Start = Callable[..., AgentProcess]
REFUSES = """
from carico_agent.plugin_api import Refuse
from carico_plugins.throttling import Plugin as Shipped

class Plugin(Shipped):
    def start(self, view):
        raise Refuse("no cgroup v2 at the root")
"""


def carico(*words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "carico_agent", *words]
    return subprocess.run(command, cwd=TREE, text=True, timeout=60, **{"capture_output": True, **options})


def test_a_locale_without_our_characters(start_agent: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` and `top` ended with UnicodeEncodeError, and the agent printed no line."""
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    process = start_agent()
    process.wait(lambda agent: agent.status()["pod_capacity"] is not None)
    shown = carico("status", "--socket", process.socket)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"Pod-Capacity \d+\.\d \[\d+\.\d-\d+\.\d\]", shown.stdout), shown.stdout
    doctor = carico("doctor")
    assert "Traceback" not in doctor.stderr
    assert "-> " in doctor.stdout
    deadline_s = time.monotonic() + 30
    while "Pod-Capacity" not in process.log.read_text() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert re.search(r"Pod-Capacity \d+\.\d \[", process.log.read_text())


@pytest.mark.parametrize("words", [("print-config",), ("doctor",), ("completion", "bash")])
def test_a_full_disk_is_no_traceback(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = carico(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr == "carico: the output cannot be written: No space left on device\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "carico_agent", "print-config"]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_throttling_says_why_its_plugin_refused(
    start_agent: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a KeyError."""
    (tmp_path / "site/throttling").mkdir(parents=True)
    (tmp_path / "site/throttling/__init__.py").write_text(REFUSES)
    config = tmp_path / "c.toml"
    config.write_text(f'[plugins]\nenabled = ["throttling"]\nsite_folder = "{tmp_path}/site"\n')
    process = start_agent("--config", str(config))
    process.wait(lambda agent: agent.request("GET", "/v1/plugins/throttling")["state"] == "refused")
    for flags in ([], ["--json"], ["web-*"]):
        assert main(["throttling", "--socket", process.socket, *flags]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "the throttling plugin does not run: refused: no cgroup v2 at the root" in printed.err


def test_the_journal_says_that_it_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It printed nothing, and `?` for what a record is."""
    path = tmp_path / "journal"
    assert main(["journal", "--journal", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no journal, nothing was changed\n"
    path.touch()
    assert main(["journal", "--journal", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: empty, no value is changed now\n"
    assert main(["journal", "--journal", str(path), "--json"]) == 0
    assert capsys.readouterr().out == ""
    journal = Journal(path)
    journal.append("action", plugin="template")
    journal.close()
    assert main(["journal", "--journal", str(path)]) == 0
    assert "  action   plugin=template" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"hello\n", "this describes no Pod: an object with kind, metadata.name"),
        (b"- a\n- b\n", "this describes no Pod"),
        (b"kind: Pod\nmetadata: {name: a}\nspec: null\n", "this describes no Pod"),
        (b"kind: Deployment\nmetadata: {name: a}\nspec: {template: 5}\n", "this describes no Pod"),
        (b"kind: Service\nmetadata: {name: a}\n", "a Service makes no Pods; known are Pod, Deployment"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"", "empty"),
    ],
)
def test_fit_with_a_file_that_describes_no_pod(
    text: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It showed Python's own exceptions, and not which file is meant."""
    file = tmp_path / "pod.yaml"
    file.write_bytes(text)
    assert main(["fit", "-f", str(file), "--socket", str(tmp_path / "none.sock")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"carico: {file}: ")
    assert says in said
    assert "Error(" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[plugins]\nenabled = ["memoryqos"]\n', "plugins.enabled: no plugin memoryqos; there are"),
        ('[plugins]\nenabled = ["throttling"]\n[plugins.settings.throttling]\nwindow = 1\n', "did you mean window_s?"),
        ('[socket]\ngroup = "rooot"\n', "socket.group: there is no group 'rooot' here, did you mean root?"),
        ('[kubernetes]\nkubeconfig = "/nope/config"\n', "kubernetes.kubeconfig: /nope/config does not exist"),
        ('[containerd]\nsocket = "/nope/c.sock"\n', "containerd.socket: /nope/c.sock: No such file"),
        ('[containerd]\nsocket = "/etc/passwd"\n', "containerd.socket: /etc/passwd is not a socket"),
        ("[model.limits]\ngpu = 0.5\n", "model.limits.gpu: unknown resource"),
        ('[node]\nroot = "/nope"\n', "node.root: /nope has no proc/stat"),
    ],
)
def test_check_config_names_what_is_not_here(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "fine"."""
    config = tmp_path / "c.toml"
    config.write_text(text)
    assert main(["check-config", str(config)]) == 1
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.out == ""


def test_check_config_names_errors_of_type_and_of_range_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[sampling]\nio = "yes"\nperiod_s = 0\n[model]\nmax_pods = "x"\nlimits = { cpu = 3.0 }\n'
        '[listen]\naddress = "nonsense"\n[kubernetes]\nheartbeat_s = "x"\nttl_s = 20\n'
    )
    assert main(["check-config", str(config)]) == 1
    said = capsys.readouterr().err
    for part in (
        "sampling.io: true or",
        "sampling.period_s: 0 is not",
        "model.limits.cpu: 3.0 is not in",
        "listen.addr",
    ):
        assert part in said, part
    assert "min_interval_s <=" not in said, "heartbeat_s is not known, so nothing can be said about it"
