"""Measured Pods on real containers: workloads from labels, counters that grow, quotas; no times are judged."""

import asyncio
import time

import pytest

from carico_agent import settings
from carico_agent.node.pods.meter import PodMeters

from .conftest import running, until

UID = "0a1b2c3d-1111-2222-3333-444455556666"
LOOP = ("/bin/busybox", "sh", "-c", "while :; do :; done")


@pytest.mark.long
async def test_workload_demand_and_history(containerd):
    labels = {
        "io.cri-containerd.kind": "sandbox",
        "io.kubernetes.pod.name": "web-6c5d9b7f8d-x7k2p",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": UID,
        "pod-template-hash": "6c5d9b7f8d",
    }
    path = f"kubepods/pod{UID}"
    containerd.run("sandbox", namespace="k8s.io", labels=labels, cgroup=f"{path}/sandbox")
    member = {**labels, "io.cri-containerd.kind": "container", "io.kubernetes.container.name": "app"}
    quota = ("--cpu-quota", "10000", "--cpu-period", "100000")
    await asyncio.to_thread(
        containerd.run, "app", *LOOP, namespace="k8s.io", labels=member, cgroup=f"{path}/app", flags=quota
    )
    config = settings.parse({"containerd": {"socket": containerd.socket}})
    async with running(config) as runtime:
        await until(lambda: UID in runtime.pods and len(runtime.pods[UID].containers) == 2 and runtime.pods[UID].inode)
        assert (runtime.pods[UID].workload, runtime.pods[UID].per_node) == ("shop/web", False)
        meters, reader = PodMeters(runtime.open_pod()), runtime.container_reader()
        pods = runtime.pods
        meters.tick(time.monotonic(), pods)
        reader.tick(0.0, 0.0, pods)
        before_s = time.monotonic()
        await until(lambda: time.monotonic() - before_s > 2.5)
        (found,) = meters.tick(time.monotonic(), pods)
        wanted = found.demand()
        assert 0.0 < wanted.cpu_usage_cores <= wanted.cpu_cores
        assert wanted.memory_bytes > 0
        # the quota is the container's, its Pod has none: still nothing above it is wanted (1 core without the bound)
        assert wanted.cpu_cores < 0.5
        (minute,) = reader.tick(61.0, 1e9, pods)
        assert (minute.workload, minute.container, minute.data.periods > 0) == ("shop/web", "app", True)
        assert minute.data.memory_bytes > 0 and minute.data.oom_kills == 0
        meters.close()
