"""Worker threads: bounded, refused when all are taken, failures handed on, and no obstacle to the end of a process."""

import asyncio
import subprocess
import sys
import threading

import pytest

from carico_agent.lib.supervise.workers import Workers, WorkersBusy


def fail() -> None:
    raise KeyError("x")


async def test_results_and_failures_are_handed_on() -> None:
    workers = Workers("test", 2)
    assert await workers.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(KeyError):
        await workers.run(fail)
    assert await workers.run(sorted, [2, 1], reverse=True) == [2, 1]


async def test_more_than_allowed_are_refused_at_once_and_not_queued() -> None:
    workers, release = Workers("the disk", 2), threading.Event()
    held = [asyncio.create_task(workers.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(WorkersBusy, match="2 calls for the disk"):
        await workers.run(fail)
    release.set()
    assert await asyncio.gather(*held) == [True, True]
    assert await workers.run(int, "7") == 7


async def test_threads_are_used_again() -> None:
    workers, seen = Workers("test", 4), set[str]()
    for _ in range(50):
        seen.add((await workers.run(threading.current_thread)).name)
    assert seen == {"carico test 1"}


async def test_who_gives_up_waiting_leaves_the_call_running() -> None:
    workers, release, done = Workers("test", 1), threading.Event(), threading.Event()

    def call() -> None:
        release.wait()
        done.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await workers.run(call)
    with pytest.raises(WorkersBusy):
        await workers.run(int)
    release.set()
    assert done.wait(60)
    async with asyncio.timeout(60):
        while True:  # the thread is free a moment after the call has ended
            try:
                assert await workers.run(int) == 0
                break
            except WorkersBusy:
                await asyncio.sleep(0)


def test_a_hanging_call_does_not_keep_the_process() -> None:
    code = (
        "import asyncio, threading\n"
        "from carico_agent.lib.supervise.workers import Workers\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.05):\n"
        "            await Workers('x', 1).run(threading.Event().wait)\n"
        "    except TimeoutError:\n"
        "        print('left')\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "left\n", "")
