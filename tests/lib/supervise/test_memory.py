"""Memory that is free goes back to the kernel, and garbage is looked for rarely."""

import platform
import subprocess
import sys

import pytest

PROBE = """
from carico_agent.lib.supervise.memory import give_back
def resident():
    with open("/proc/self/statm") as statm: return int(statm.read().split()[1]) * 4096
kept = [bytes(100_000) for _ in range(800)]  # below malloc's threshold for maps of their own
last = bytes(100_000)  # above them: the heap cannot simply end lower
del kept
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_holes_in_the_heap_are_given_back() -> None:
    answer = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert int(answer.stdout) >= 20_000_000


RARELY = """
import gc
from carico_agent.lib.supervise.memory import CONTAINERS, collect_rarely
collect_rarely()
gc.collect()
runs = []
gc.callbacks.append(lambda phase, info: runs.append(phase))
some = [[] for _ in range(CONTAINERS // 2)]
print(len(runs))
more = [[] for _ in range(CONTAINERS)]
print(len(runs))
"""


def test_garbage_is_looked_for_when_much_was_allocated_and_not_before() -> None:
    answer = subprocess.run([sys.executable, "-c", RARELY], capture_output=True, text=True, check=True)
    first, second = map(int, answer.stdout.split())
    assert first == 0 and second > 0
