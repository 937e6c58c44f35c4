"""Against a real, private containerd: nothing lost, nothing counted twice. Skipped where it is not installed."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from carico_agent import settings
from carico_agent.node.pods.pods import CONTAINER_NAME, CRI_ROLE, POD_NAME, POD_NAMESPACE, POD_UID
from carico_agent.node.pods.watch import CHURN_TOPICS, SNAPSHOT

from .conftest import PrivateContainerd, missing, running, until
from .trees import ID, UID

BUSYBOX = "/bin/busybox"


def configured(containerd, **pods):
    return settings.parse({"containerd": {"socket": containerd.socket}, "pods": pods})


def truth(containerd) -> int:
    """What ctr says is running; never asked through our own code."""
    lines = containerd.ctr("tasks", "list").splitlines()[1:]
    return sum(line.split()[-1] in ("RUNNING", "PAUSED") for line in lines)


@pytest.mark.long
async def test_a_hundred_rapid_starts_and_stops(containerd):
    """Four at a time: half of them removed, some end by themselves, ids are used again."""

    def live(number: int) -> None:
        name = f"c{number % 40}"  # every id lives two or three times
        containerd.remove(name)
        containerd.run(name, *((BUSYBOX, "true") if number % 5 == 0 else ()))
        if number % 2:
            containerd.remove(name)

    def lane(first: int) -> None:
        for number in range(first, 100, 4):  # a lane owns its ids: 40 is a multiple of 4
            live(number)

    async with running(configured(containerd)) as runtime:
        received = []
        runtime.listen(received.append)
        await until(lambda: runtime.source == "containerd")
        with ThreadPoolExecutor(4) as pool:
            await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, lane, n) for n in range(4)))
        expected = await asyncio.to_thread(truth, containerd)
        assert expected > 0
        await until(lambda: runtime.count == expected)
        await asyncio.sleep(3)  # a listing raised by a doubt must find the same
        assert runtime.count == len(runtime.pods) == expected
        assert sum(e.topic == "/tasks/start" for e in received) == 100
        assert sum(e.topic == "/containers/create" for e in received) == 100
        async with running(configured(containerd)) as newcomer:
            await until(lambda: newcomer.source == "containerd")
            assert dict(newcomer.pods).keys() == dict(runtime.pods).keys()


async def test_containerd_killed_and_restarted(containerd):
    for name in ("stays", "ends"):
        containerd.run(name)
    async with running(configured(containerd)) as runtime:
        await until(lambda: runtime.count == 2)
        containerd.kill()
        await until(lambda: "reconnecting" in runtime.condition)
        assert runtime.count == 2, "containers outlive their containerd"
        os.kill(runtime.pods["default/ends"].pids[0], signal.SIGKILL)
        await until(lambda: runtime.count == 1)
        assert runtime.log.recent()[0].topic == SNAPSHOT and runtime.log.recent()[0].count == 2
        assert (runtime.log.recent()[-1].topic, runtime.log.recent()[-1].pod_name) == ("/tasks/exit", "ends")
        await asyncio.to_thread(containerd.start)
        await until(lambda: "reconnecting" not in runtime.condition)
        assert (runtime.count, list(runtime.pods)) == (1, ["default/stays"])
        await asyncio.to_thread(containerd.run, "new")
        await until(lambda: runtime.count == 2)
        await asyncio.to_thread(containerd.remove, "stays", "ends", "new")
        await until(lambda: runtime.count == 0)


async def test_containerd_killed_between_starts_and_stops(containerd):
    """kill -9 in the middle of a burst, three times; in the end the table is what ctr lists."""
    async with running(configured(containerd)) as runtime:
        await until(lambda: runtime.source == "containerd")

        def burst(round_: int) -> None:
            with ThreadPoolExecutor(3) as pool:
                jobs = [pool.submit(containerd.run, f"r{round_}-{n}") for n in range(6)]
                time.sleep(0.15 * (round_ + 1))
                containerd.kill()
                for job in jobs:
                    job.exception()  # those that met the kill fail, of course
            containerd.start()

        for round_ in range(3):
            await asyncio.to_thread(burst, round_)
        await asyncio.to_thread(containerd.run, "last")
        await until(lambda: "default/last" in runtime.pods)
        expected = await asyncio.to_thread(truth, containerd)
        await until(lambda: runtime.count == expected)


@pytest.mark.long
async def test_the_agent_killed_in_the_middle(containerd):
    code = (
        "import asyncio, sys; from carico_agent import settings; from carico_agent.node.pods.watch import discover\n"
        "runtime = discover(settings.parse({'containerd': {'socket': sys.argv[1]}}))\n"
        "runtime.listen(lambda event: print(event.count, flush=True))\n"
        "asyncio.run(runtime.run())"
    )
    containerd.run("early")
    agent = subprocess.Popen(
        [sys.executable, "-c", code, containerd.socket],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert await asyncio.to_thread(agent.stdout.readline)  # it has listed what there is, and receives events
        burst = asyncio.create_task(asyncio.to_thread(lambda: [containerd.run(f"b{n}") for n in range(8)]))
        for _ in range(5):  # it is in the middle of the burst now
            assert await asyncio.to_thread(agent.stdout.readline)
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()
    async with running(configured(containerd)) as runtime:
        await burst
        await until(lambda: runtime.count == 9)
        await asyncio.sleep(1.5)  # past the second look
        assert runtime.count == 9 == await asyncio.to_thread(truth, containerd)


async def test_execs_pauses_and_containers_without_tasks(containerd):
    containerd.run("a")
    containerd.create("never-started")
    async with running(configured(containerd)) as runtime:
        counts, topics = [], []
        await until(lambda: runtime.count == 1)
        runtime.listen(lambda event: (counts.append(event.count), topics.append(event.topic)))
        churn_until_s = runtime.churn_until_s
        await asyncio.to_thread(containerd.ctr, "tasks", "exec", "--exec-id", "probe", "a", BUSYBOX, "true")
        await asyncio.to_thread(containerd.ctr, "tasks", "pause", "a")
        await until(lambda: "/tasks/paused" in topics)
        assert runtime.pods["default/a"].containers[0].paused
        async with running(configured(containerd)) as newcomer:  # paused tasks are in the list, too
            await until(lambda: newcomer.count == 1)
        await asyncio.to_thread(containerd.ctr, "tasks", "resume", "a")
        await until(lambda: "/tasks/resumed" in topics)
        assert set(counts) == {1}
        assert "/tasks/exit" in topics, "the exec's"
        assert runtime.churn_until_s == churn_until_s, "neither execs nor pauses are churn"


async def test_deleted_and_recreated_ids(containerd):
    containerd.run("again")
    async with running(configured(containerd)) as runtime:
        await until(lambda: runtime.count == 1)
        lives = [runtime.pods["default/again"]]
        for _ in range(3):
            await asyncio.to_thread(containerd.remove, "again")
            await until(lambda: runtime.count == 0)
            await asyncio.to_thread(containerd.run, "again")
            await until(lambda: runtime.count == 1 and runtime.pods["default/again"].inode > 0)
            lives.append(runtime.pods["default/again"])
        assert len({pod.inode for pod in lives}) == len({pod.pids for pod in lives}) == 4


def cri_labels(kind: str, uid: str, namespace: str, container: str = "") -> dict[str, str]:
    labels = {CRI_ROLE: kind, POD_UID: uid, POD_NAME: f"web-{uid[:4]}", POD_NAMESPACE: namespace}
    return {**labels, CONTAINER_NAME: container} if container else labels


async def test_kubernetes_pods_and_their_cgroup(containerd):
    path = f"kubepods/burstable/pod{UID}"
    other = "9" + UID[1:]

    def start(name: str, **more) -> None:
        containerd.run(name, namespace="k8s.io", **more)

    start(ID, labels=cri_labels("sandbox", UID, "prod"), cgroup=f"{path}/{ID}")
    async with running(configured(containerd, skip_namespaces=["kube-*"])) as runtime:
        received = []
        runtime.listen(received.append)
        await until(lambda: runtime.count == 1)
        await asyncio.to_thread(start, "app", labels=cri_labels("container", UID, "prod", "app"), cgroup=f"{path}/app")
        await until(lambda: len(runtime.pods[UID].containers) == 2)
        await asyncio.to_thread(start, "system", labels=cri_labels("sandbox", other, "kube-system"))
        await until(lambda: other in runtime.pods)
        pod = runtime.pods[UID]
        assert (runtime.count, pod.name, pod.namespace, pod.uid) == (1, "web-0a1b", "prod", UID)
        assert [member.name for member in pod.containers] == [ID, "app"]
        assert pod.cgroup == f"/{containerd.cgroup}/{path}"
        assert abs(pod.started_s - time.time()) < 60
        assert {event.pod_name for event in received if event.container_id == "app"} == {"web-0a1b"}
        usage = runtime.read_usage(time.monotonic())
        assert usage[UID].cpu_usage_usec > 0 and usage[UID].memory_current > 0
        await asyncio.to_thread(containerd.remove, "app", namespace="k8s.io")
        await until(lambda: len(runtime.pods[UID].containers) == 1)
        assert runtime.count == 1
        await asyncio.to_thread(containerd.remove, ID, "system", namespace="k8s.io")
        await until(lambda: not runtime.pods)
        assert (runtime.count, dict(runtime.read_usage(time.monotonic()))) == (0, {})


@pytest.mark.alone  # agents of other tests would count its Pods
@pytest.mark.parametrize("what", ["folder", "file"])
async def test_pods_count_after_a_restart_below_a_mount(containerd, what, tmp_path):
    """As the DaemonSet sees it. A mounted folder shows the new socket; a mounted file stays the old, dead one, and then
    the cgroup tree has what containerd does not know."""
    if os.geteuid():
        pytest.skip("mounts need root")
    containerd.cgroup = f"kubepods-{containerd.cgroup}"  # where a scan of the tree looks
    there = tmp_path / "mounted"
    source = Path(containerd.socket) if what == "file" else containerd.folder
    there.touch() if what == "file" else there.mkdir()
    subprocess.run(["mount", "--bind", source, there], check=True)
    try:
        config = settings.parse({"containerd": {"socket": str(there if what == "file" else there / "c.sock")}})
        path = f"{containerd.cgroup}/kubepods/burstable/pod"
        first, second = UID, "9" + UID[1:]

        def start(uid: str) -> None:
            name = uid.replace("-", "")[:32] * 2
            labels = cri_labels("sandbox", uid, "prod")
            containerd.run(name, namespace="k8s.io", labels=labels, cgroup=f"kubepods/burstable/pod{uid}/{name}")

        start(first)
        async with running(config) as runtime:
            await until(lambda: runtime.source == "containerd" and first in runtime.pods)
            containerd.kill()
            os.unlink(containerd.socket)
            await asyncio.to_thread(containerd.start)
            await asyncio.to_thread(start, second)
            await until(lambda: {first, second} <= set(runtime.pods))
            assert all(runtime.pods[uid].cgroup == f"/{path}{uid}" for uid in (first, second))
            assert ("reconnecting" in runtime.condition) == (what == "file")
    finally:
        subprocess.run(["umount", there], check=True)


@pytest.mark.long
async def test_containerd_that_appears_later(containerd):
    containerd.kill()
    os.unlink(containerd.socket)
    async with running(configured(containerd)) as runtime:
        await until(lambda: runtime.source != "containerd" and runtime.condition != "starting")
        await asyncio.to_thread(containerd.start)
        await asyncio.to_thread(containerd.run, "a")
        await until(lambda: runtime.source == "containerd" and runtime.count == 1)


async def test_the_first_event_opens_the_churn_window_before_the_task_runs(containerd):
    async with running(configured(containerd, churn_s=30.0)) as runtime:
        received = []
        await until(lambda: runtime.source == "containerd")
        runtime.listen(lambda event: received.append((event, runtime.churn_until_s)))
        await asyncio.to_thread(containerd.run, "a")
        await until(lambda: runtime.count == 1)
    (first, opened_s), *_ = received
    assert (first.topic, opened_s) == ("/containers/create", first.t + 30.0)
    starts = [event for event, _ in received if event.topic == "/tasks/start"]
    assert first.time_s < starts[0].time_s and first.topic in CHURN_TOPICS


def test_nothing_is_left_behind():
    """The fixture's own promise: after a failure, with containers running and containerd dead."""
    if reason := missing():
        pytest.skip(reason)
    private = PrivateContainerd(Path(tempfile.mkdtemp(prefix="carico-")))
    with pytest.raises(ZeroDivisionError), private:
        private.run("a")
        private.kill()
        raise ZeroDivisionError
    assert not private.folder.exists()
    assert private._shims() == private._cgroups() == private._mounts() == []
