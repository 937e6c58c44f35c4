"""The alarm of the cgroup tree: the scan comes when something came or went, not a period later."""

import asyncio
import shutil

from carico_agent import settings
from carico_agent.node.pods import watch
from carico_agent.node.pods.tree_alarm import TreeAlarm

from .conftest import running, until
from .trees import POD_PATHS, FakeRoot

LONG_S = 3600.0


async def test_pods_are_counted_without_waiting_for_a_scan(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "SCAN_PERIOD_S", LONG_S)
    monkeypatch.setattr(watch, "EMPTY_PERIOD_S", 3 * LONG_S)
    fake, (path, _) = FakeRoot(tmp_path, "v2"), POD_PATHS["systemd"]
    tree = tmp_path / "sys/fs/cgroup"
    config = settings.parse({"node": {"root": str(tmp_path)}, "containerd": {"enabled": False}})
    async with running(config) as runtime:
        await until(lambda: runtime.condition == watch.NO_RUNTIME)
        for _ in range(2):  # the second time the directories that held it are new ones
            fake.group(path)
            await until(lambda: runtime.count == 1)
            shutil.rmtree(tree / path.lstrip("/"))
            await until(lambda: runtime.count == 0)
            shutil.rmtree(tree / "kubepods.slice")
            await until(lambda: runtime.source == "none")


async def test_it_only_sleeps_where_the_kernel_refuses(tmp_path):
    alarm = TreeAlarm()
    alarm.close()
    alarm.watch([str(tmp_path)])
    assert not alarm.works
    sleeping = asyncio.create_task(alarm.sleep(0.2))
    await asyncio.sleep(0.05)
    (tmp_path / "new").mkdir()
    await asyncio.sleep(0.05)
    assert not sleeping.done()
    await sleeping


async def test_a_directory_that_came_back_is_watched_again(tmp_path):
    alarm, group = TreeAlarm(), tmp_path / "kubepods"
    for _ in range(3):
        group.mkdir()
        alarm.watch([str(tmp_path), str(group)])
        (group / "pod").mkdir()
        await asyncio.wait_for(alarm.sleep(LONG_S), 60)
        shutil.rmtree(group)
        await asyncio.wait_for(alarm.sleep(LONG_S), 60)
    alarm.close()
