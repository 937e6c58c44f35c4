"""One real kubelet at the target: containers of moved Jobs really run, each once, and write it down on the node."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.support.burst_planes import BurstPlane, Kubelets, job_body
from lab.support.burst_process import BurstProcess
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.test_daemon import all_done
from tests.kube import kubelet as real

Planes = tuple[BurstPlane, BurstPlane]


@pytest.fixture
def kubelet(planes: Planes) -> Iterator[real.Kubelet]:
    if why := real.missing():
        pytest.skip(f"no kubelet: {why}")
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:  # short: containerd's socket lies in it
        one = real.Kubelet(planes[1], Path(folder), "real")
        yield one
        one.stop()


class HomeOnly(Scene):
    """Kubelets are pretended at home only, where nothing is scheduled."""

    def __init__(self, planes: Planes) -> None:
        super().__init__(planes)
        self.kubelets = (Kubelets("home", self.home, self.runs, nodes=1, places=1),)  # type: ignore[assignment]


async def test_containers_run_once(planes: Planes, kubelet: real.Kubelet, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="carico-out-") as out:
        bodies = []
        for number in range(4):
            body = job_body(f"job-{number}")
            pod = body["spec"]["template"]["spec"]
            pod["volumes"] = [{"name": "out", "hostPath": {"path": out}}]
            pod["containers"][0] |= {
                "image": real.IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", f"echo job-{number} >>/out/ran; /bin/busybox sleep 1"],
                "volumeMounts": [{"name": "out", "mountPath": "/out"}],
            }
            bodies.append(body)
        service = BurstProcess(tmp_path, *planes, target={"host_paths": [out]})
        async with HomeOnly(planes) as scene:
            names = await scene.submit(bodies)
            service.start()
            try:
                await asyncio.to_thread(wait_for, lambda: all_done(scene, names), "all have ended", 200, 0.5)
            finally:
                service.kill()
            assert scene.runs == []
        assert Counter(Path(out, "ran").read_text().split()) == dict.fromkeys(names, 1)
