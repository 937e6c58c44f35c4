"""`carico demo` as a newcomer runs it: real loops on this machine, whatever else it does meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.cli import main
from carico_agent.node.commands.demo import conclusion, line
from carico_agent.node.demo.busy_loops import PROGRAM
from carico_agent.node.demo.demo import DemoResult, Second, bursts, procs_running, summarize
from carico_agent.node.pods.process_counters import read_stat

TREE = Path(__file__).parent.parent.parent
FITS = 2 * (os.cpu_count() or 1)
Demo = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def demo() -> Iterator[Demo]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "carico_agent", "demo", *arguments]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=TREE, text=True, **streams))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def children_of(pid: int) -> list[int]:
    """The loops that this process has started, by what they run."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and f"\n{pid}" in loop_arguments(folder)
    ]


def loop_arguments(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return ""
    return "\n".join(words[-3:]) if PROGRAM in words else ""


def until_loops_run(process: "subprocess.Popen[str]") -> list[int]:
    for text in process.stdout or ():
        if json.loads(text).get("loops"):
            return children_of(process.pid)
    raise AssertionError("it ended without loops")


@pytest.mark.long
def test_a_short_run(demo: Demo) -> None:
    process = demo("--seconds", "6", "--json")
    result, complaints = process.communicate()
    *seconds, last = [json.loads(text) for text in result.splitlines()]
    assert process.returncode == 0, complaints
    assert [second["t"] for second in seconds] == [1, 2, 3, 4, 5, 6]
    assert [second["loops"] > 0 for second in seconds] == [False, False, True, True, True, True]
    for second in seconds:  # the truth is what the printed formula gives with the printed numbers
        assert second["truth"] == pytest.approx(max(0, FITS - second["loops"] - second["others"]), abs=1e-9), second
    assert all(second["low"] <= second["pod_capacity"] <= second["high"] for second in seconds)
    assert last["summary"]["compared"] == sum(second["compared"] for second in seconds) == 4
    assert not children_of(process.pid)


@pytest.mark.long
def test_what_people_read(demo: Demo) -> None:
    process = demo("--seconds", "4")
    result, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, "")
    assert f"so {FITS} loops fit here" in result
    assert " 4 s" in result and "Off by" in result
    assert f"\n  {sys.executable} -m carico_agent install --systemd " in result, (
        "as it was called, not as it is not found"
    )


@pytest.mark.long
def test_the_page_shows_the_loops_as_pods(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")  # the command: opens nothing, and is content
    process = demo("--json", "--page")
    assert process.stderr is not None
    address, _, token = process.stderr.readline().strip().removeprefix("the page: ").partition("#token=")
    assert until_loops_run(process)

    def ask(path: str) -> Any:
        asked = urllib.request.Request(f"{address}{path}", headers={"Authorization": f"Bearer {token}"})
        return json.load(urllib.request.urlopen(asked, timeout=20))

    assert ask("v1/status")["pods"] > 0
    assert [event["what"] for event in ask("v1/history")["events"]].count("start") > 0
    deadline_s = time.monotonic() + 60
    while not any((pod["usage"] or {}).get("cpu_usage_usec") for pod in ask("v1/pods")["pods"]):
        assert time.monotonic() < deadline_s, "no loop was seen to use CPU"
        time.sleep(0.1)
    assert ask("v1/self")["ticks"] > 0
    for path in ("progress", "reservations", "plugins"):
        assert ask(f"v1/{path}")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{address}v1/status", timeout=20)


@pytest.mark.long
def test_ctrl_c_ends_it_with_a_summary(demo: Demo) -> None:
    process = demo("--json")
    assert until_loops_run(process)
    process.send_signal(signal.SIGINT)
    result, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, "")
    assert json.loads(result.splitlines()[-1])["summary"]["compared"] >= 1
    assert not children_of(process.pid)


@pytest.mark.long
def test_no_loop_outlives_a_demo_that_is_killed(demo: Demo) -> None:
    process = demo("--json")
    loops = until_loops_run(process)
    assert loops
    process.kill()
    process.wait()
    while any(read_stat(pid) for pid in loops):
        pass


@pytest.mark.parametrize("seconds", ["0", "3", "100000"])
def test_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", seconds]) == 2
    assert "between 4 and 3600" in capsys.readouterr().err


def test_a_machine_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("carico_agent.node.demo.demo.procs_running", lambda stat: procs_running(b"cpu 1 2 3"))
    assert main(["demo"]) == 1
    assert "no procs_running" in capsys.readouterr().err


def test_bursts_have_every_size() -> None:
    sizes = bursts(3, seed=1)
    assert sorted(next(sizes) for _ in range(6)) == [1, 2, 3, 4, 5, 6]
    assert sorted(next(sizes) for _ in range(6)) == [1, 2, 3, 4, 5, 6]


def test_summary() -> None:
    good = Second(4, 1, 2.0, 3.0, 2.5, 2.0, 3.5, "measured", True)
    missed = Second(5, 1, 0.0, 3.0, 4.5, 4.0, 5.0, "measured", True)
    moving = Second(6, 2, 0.0, 2.0, 9.0, 9.0, None, "predicted", False)
    unknown = Second(7, 2, 0.0, 2.0, None, None, None, "learning", True)
    found = summarize([good, missed, moving, unknown])
    assert found == DemoResult(2, 1.0, 1.5, 0.333, 1.0)  # one of three lines with a number, the early one too
    assert "Off by 1.00 Pods in the mean, 1.50 at most, over 2 s" in conclusion(found)
    assert "Others wanted 1.0 cores" in conclusion(found)
    assert "There was nothing to compare" in conclusion(summarize([moving]))
    assert line(unknown).endswith("not known yet")
    assert line(moving).endswith("9.0 [9.0–∞] predicted             (too early)")
