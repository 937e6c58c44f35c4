"""Issue 36: what made new users stumble: tracebacks, silence, messages that name neither cause nor remedy."""

import grp
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.client import AgentClient
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


@pytest.mark.long
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


TRACE = "tests/golden/bursts.trace.gz"
KUBECTL = "import sys; from carico_agent.kubectl.command import main; sys.exit(main())"


@pytest.mark.parametrize(
    "words", [("print-config",), ("doctor",), ("completion", "bash"), ("replay", TRACE), ("--help",), ("fit", "--help")]
)
def test_a_full_disk_is_no_traceback(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = carico(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr == "carico: the output cannot be written: No space left on device\n"


def test_a_full_disk_is_no_traceback_of_the_kubectl_plugin() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", KUBECTL, "--help"]
        ended = subprocess.run(command, cwd=TREE, text=True, timeout=60, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr == "carico: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [("print-config",), ("replay", TRACE)])
def test_a_reader_that_leaves_early_is_no_error(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "carico_agent", *words]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize("words", [("replay", "absent"), ("recommend", "--trace", "absent"), ("fit", "-f", "absent")])
def test_a_file_that_is_not_there_is_named_without_an_error_number(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was `[Errno 2] No such file or directory: 'absent'`."""
    assert main(list(words)) == 1
    assert capsys.readouterr().err == "carico: absent: No such file or directory\n"


def test_throttling_says_how_its_plugin_is_switched_on(start_agent: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """It named a path of the API and no setting."""
    process = start_agent()
    process.wait(lambda agent: agent.status()["pod_capacity"] is not None)
    assert main(["throttling", "--socket", process.socket]) == 1
    said = 'carico: the throttling plugin is off: set plugins.enabled = ["throttling"]\n'
    assert capsys.readouterr().err == said


def test_a_port_that_is_taken_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["page", "--no-browser", "--port", str(port)]) == 1
    assert capsys.readouterr().err == f"carico: cannot listen on 127.0.0.1:{port}: Address already in use\n"


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


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user here")
def test_an_agent_whose_socket_may_not_be_made_names_it() -> None:
    """It said "Permission denied", and not where."""
    code = """
import os
from pathlib import Path
from carico_agent.lib.net.sockets import bind_unix
os.setresuid(65534, 65534, 65534)
for path in ("/proc/forbidden/agent.sock", "/agent.sock", "/etc/deep/agent.sock", "/tmp/" + 120 * "a"):
    try:
        bind_unix(Path(path))
    except OSError as error:
        print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    assert lines[0].startswith("cannot listen on /proc/forbidden/agent.sock: No such file or directory")
    assert lines[1] == "cannot listen on /agent.sock: Permission denied; choose another path"
    assert lines[2] == "cannot listen on /etc/deep/agent.sock: Permission denied; choose another path"
    assert lines[3].startswith("cannot listen on /tmp/aaa") and "too long" in lines[3]


@pytest.mark.long
def test_a_taken_port_names_its_setting_and_leaves_no_socket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for table, key in (("listen", "address"), ("page", "listen")):
            config = tmp_path / "c.toml"
            config.write_text(f'[{table}]\n{key} = "127.0.0.1:{port}"\n[node]\nstate = "{tmp_path}/state"\n')
            ended = carico("agent", "--config", str(config), "--socket", str(tmp_path / "agent.sock"))
            assert ended.returncode == 1
            assert f"carico: {table}.{key}: cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr
            assert not (tmp_path / "agent.sock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user here")
def test_a_socket_of_a_group_says_which() -> None:
    """It asked whether the agent runs."""
    code = """
import os, socket, sys
from carico_agent.client import AgentClient, AgentUnavailable
folder, group = sys.argv[1], int(sys.argv[2])
path = f"{folder}/agent.sock"
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen()
    os.chmod(path, 0o660)
    os.chown(path, 0, group)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    try:
        AgentClient(path).status()
    except AgentUnavailable as error:
        print(error)
"""
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which is closed to other users
        os.chmod(folder, 0o755)
        said = [
            subprocess.run(
                [sys.executable, "-c", code, folder, str(group)], cwd=TREE, capture_output=True, text=True, check=True
            ).stdout
            for group in (grp.getgrnam("daemon").gr_gid, 0)
            if not Path(folder, "agent.sock").unlink(missing_ok=True)
        ]
    assert f"this user may not open {folder}/agent.sock: it is for members of the group daemon" in said[0]
    assert "it is user 0's alone" in said[1]


@pytest.mark.long
def test_two_agents_in_one_folder_keep_their_sockets_for_jobs_apart(start_agent: Start, tmp_path: Path) -> None:
    """The second one took the first one's, and left a dead one."""
    first = start_agent()
    first.wait()
    state = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "other")}
    command = [sys.executable, "-m", "carico_agent", "agent", "--quiet", "--socket", str(tmp_path / "second.sock")]
    with subprocess.Popen(command, cwd=TREE, env=state, stderr=subprocess.PIPE) as second:
        places = [
            AgentClient(str(tmp_path / name)) for name in ("agent.sock", "second.sock") if wait_for(tmp_path / name)
        ]
        paths = [Path(agent.request("GET", "/v1/progress")["socket"]) for agent in places]
        assert paths == [tmp_path / "progress/progress.sock", tmp_path / "second.sock.progress/progress.sock"]
        assert all(wait_for(path) for path in paths)
        inode = paths[0].stat().st_ino
        second.terminate()
        second.communicate(timeout=60)
    assert paths[0].stat().st_ino == inode
    with socket.socket(socket.AF_UNIX) as job:
        job.connect(str(paths[0]))


def wait_for(path: Path) -> bool:
    deadline_s = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return path.exists()


def test_status_and_doctor_find_the_agent_of_a_configuration(
    start_agent: Start, roomy: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` knew no --config, and `doctor` no --socket."""
    process = start_agent(*roomy, "--node", "here")
    process.wait()
    config = tmp_path / "asks.toml"
    config.write_text(f'[socket]\npath = "{process.socket}"\n')
    assert main(["status", "--config", str(config)]) == 0
    assert "Pod-Capacity" in capsys.readouterr().out
    assert main(["status", "--config", str(config), "--print-socket"]) == 0
    assert capsys.readouterr().out == f"{process.socket}\n"
    config.write_text("[socket]\npth = 1\n")
    assert main(["status", "--config", str(config)]) == 2
    assert "did you mean path?" in capsys.readouterr().err
    main(["doctor", "--socket", process.socket])
    assert f"{process.socket}, an agent answers for here" in capsys.readouterr().out
    process.process.kill()
    process.process.wait()
    main(["doctor", "--socket", process.socket])
    assert f"{process.socket}, left by an agent that has ended" in capsys.readouterr().out


@pytest.mark.parametrize(("word", "says"), [("stattus", "did you mean status?"), ("zzz", "`carico --help` lists all")])
def test_a_wrong_command_names_a_near_one(word: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It showed all thirty."""
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) <= 3


def test_a_wrong_flag_shows_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It showed thirty commands."""
    with pytest.raises(SystemExit) as ended:
        main(["status", "--sockt=x", "--wrong"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: carico status [-h]")
    assert "carico status: error: unrecognized arguments: --sockt=x --wrong" in said


@pytest.mark.long
def test_fit_suggests_a_workload_that_runs_here(
    start_agent: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process as a Pod: its workload is known within a look."""
    with subprocess.Popen(["sleep", "6173"]) as sleeper:
        try:
            config = tmp_path / "c.toml"
            config.write_text('[processes]\ncommands = ["sleep 6173"]\n')
            process = start_agent("--config", str(config))
            process.wait(lambda agent: bool(agent.request("GET", "/v1/workloads")["workloads"]))
            (known,) = [row["workload"] for row in process.client().request("GET", "/v1/workloads")["workloads"]]
            main(["fit", known.rpartition("/")[2] + "x", "--socket", process.socket])
            assert f"did you mean {known}?" in capsys.readouterr().out
            main(["fit", known, "--socket", process.socket])
            assert "did you mean" not in capsys.readouterr().out
        finally:
            sleeper.kill()
