"""The run delay of threads: fake /proc and cgroup files, and this process's own."""

import os
import threading
import time
from functools import partial

import pytest

from carico_agent.node.pods import run_delay
from carico_agent.node.pods.demand import ThreadTimes
from carico_agent.node.pods.run_delay import LIST_AGAIN_S, MAX_NEW, MAX_THREADS, WINDOW_S, RunDelay, parse, threads


class FakeThreads:
    def __init__(self, root):
        self.root = root
        (root / "group").mkdir()
        self.list()

    def set(self, tid, ran_ns, waited_ns):
        folder = self.root / f"proc/{tid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{ran_ns} {waited_ns} 3\n")

    def list(self, *tids, below=""):
        folder = self.root / "group" / below
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.threads").write_text("".join(f"{tid}\n" for tid in tids))

    def delay(self):
        return RunDelay(partial(threads, str(self.root / "group")), str(self.root / "proc"))


def waited_s(found):
    return sum(one.waited_s for one in found)


@pytest.fixture
def fake(tmp_path):
    return FakeThreads(tmp_path)


def test_parse():
    assert parse(b"1 2 3\n") == (1, 2, 3)
    for bad in (b"", b"1 2\n", b"a b c\n"):
        with pytest.raises(ValueError):
            parse(bad)


def test_waiting_of_all_threads_is_added_up(fake):
    for tid in (10, 11, 12):
        fake.set(tid, 0, 1_000_000)
    fake.list(10)
    fake.list(11, 12, 0, below="container")
    delay = fake.delay()
    assert delay.read(0.0) == []
    for tid in (10, 11, 12):
        fake.set(tid, 1, 3_000_000)
    assert delay.read(1.0) == [ThreadTimes(1e-9, 0.002, 0, 1.0, 1e-9)] * 3
    assert delay.read(2.0) == [ThreadTimes(1e-9, 0.002, 0, 2.0, 0.0)] * 3
    assert delay.read(1.0 + WINDOW_S) == []
    delay.close()


def test_a_thread_is_compared_with_some_looks_ago(fake):
    """A busy loop whose wait has not ended yet at every other look: over the window that evens out."""
    fake.list(10)
    fake.set(10, 0, 0)
    delay = fake.delay()
    for turn in range(10):
        fake.set(10, 250_000_000 * turn, 4_750_000_000 * turn - 600_000_000 * (turn % 2))
        found = delay.read(5.0 * turn)
    assert [(one.ran_s, one.elapsed_s) for one in found] == [(0.75, 15.0)]
    assert found[0].waited_s == pytest.approx(14.25, abs=0.601)
    delay.close()


def test_a_new_thread_counts_from_when_it_is_known(fake):
    fake.set(10, 0, 0)
    fake.list(10)
    delay = fake.delay()
    delay.read(0.0)
    fake.set(11, 0, 9_000_000)
    fake.list(10, 11)
    assert delay.read(LIST_AGAIN_S) == []
    fake.set(11, 0, 9_500_000)
    assert waited_s(delay.read(LIST_AGAIN_S + 1)) == 0.0005
    delay.close()


def test_threads_of_a_pod_that_begins_are_found_soon(fake):
    fake.set(10, 0, 0)
    fake.list(10)
    delay = fake.delay()
    delay.read(0.0)
    fake.set(11, 0, 0)
    fake.list(10, 11)
    delay.read(1.0)
    fake.set(11, 0, 7_000_000)
    assert waited_s(delay.read(2.0)) == 0.007
    delay.close()


def test_busy_threads_are_found_among_many_idle_ones(fake):
    tids, busy = range(1, 301), {7, 150, 299}
    for tid in tids:
        fake.set(tid, 5, 5)
    fake.list(*tids)
    delay, found = fake.delay(), 0.0
    for turn in range(1, 200):
        for tid in busy:
            fake.set(tid, turn * 1000, turn * 1_000_000)
        found = waited_s(delay.read(WINDOW_S * turn))
        assert len(delay._known) <= MAX_THREADS
        if found == 0.003:
            break
    assert found == 0.003 and turn <= 2 * len(tids) // MAX_NEW + 2
    delay.close()
    assert not delay._known


def test_a_list_that_is_cut_in_the_middle_of_a_number(fake, monkeypatch):
    monkeypatch.setattr(run_delay, "MAX_BYTES", 6)
    fake.list(12, 345, 678)
    assert list(threads(str(fake.root / "group"))) == [12]


def test_no_such_group():
    delay = RunDelay(partial(threads, "/nowhere"), "/nowhere")
    assert (delay.read(0.0), delay.read(1.0)) == ([], [])
    delay.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel has no CONFIG_SCHED_INFO")
def test_threads_of_this_process_and_their_end(tmp_path):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    group = tmp_path / "g"
    group.mkdir()
    (group / "tasks").write_text(f"{thread.native_id}\n")
    delay = RunDelay(partial(threads, str(group)))
    delay.read(0.0)
    assert list(delay._known) == [thread.native_id]
    stop.set()
    thread.join()
    (group / "tasks").write_text("")
    deadline_s = time.monotonic() + 60
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        assert time.monotonic() < deadline_s
    delay.read(1.0)
    assert not delay._known
    delay.close()
