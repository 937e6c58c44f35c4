"""A real kubelet on this machine, with a containerd of its own, as a node of the tests' control plane.

Both live in a mount namespace of their own, in which /var/lib and /var/log are empty and the kernel settings that a
kubelet would change already have its values. Their containers' cgroups lie below one directory. So nothing of this
machine is changed, and nothing is left when they end.

Pods here share the host's network, or have none but an address (NO_NETWORK), and run what is in the one image that is
made here: a busybox.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from lab.support import containerd
from lab.support.control_plane import Plane, binaries
from lab.support.waiting import free_port, wait_for

IMAGE = "localhost/busybox:1"

CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/busybox:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_dir = "{folder}/cni"
  bin_dir = "{folder}/cni-bin"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  Root = "{folder}/runc"
"""

NO_NETWORK = """\
#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"0.3.1","supportedVersions":["0.3.1"]}' ;;
ADD) echo '{"cniVersion":"0.3.1","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}],
  "ips":[{"version":"4","interface":0,"address":"10.88.0.2/32"}]}' ;;
esac
"""
"""A network plugin that makes nothing: for Pods that may not share the host's network and need no other."""

KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def missing() -> str:
    """Why no kubelet can run here; empty when one can."""
    if why := containerd.missing():
        return why
    if not os.access(binaries() / "kubelet", os.X_OK):
        return f"no kubelet in {binaries()} (`make kube` builds one)"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "unshare and nsenter are not installed (Debian: util-linux)"
    return ""


class Kubelet:
    """`name` becomes a Node. Stop it."""

    def __init__(self, plane: Plane, folder: Path, name: str) -> None:
        self._plane, self._folder, self.name = plane, folder, name
        self._process: subprocess.Popen[bytes] | None = None
        with ExitStack() as undo:  # also a set-up that fails leaves no process
            self._set_up(undo)
            self._undo = undo.pop_all()

    def _set_up(self, undo: ExitStack) -> None:
        folder, apart = self._folder, _mount_namespace(self._folder)
        undo.callback(apart.wait)
        undo.callback(apart.kill)
        self._prefix = ("nsenter", "-t", str(apart.pid), "-m", "--")
        self.pods_folder = f"/proc/{apart.pid}/root{folder}/kubelet/pods"
        """The kubelet's folder of Pods, with what it has mounted there."""
        c = folder / "c"
        (c / "cni").mkdir(parents=True)
        (c / "cni/lo.conf").write_text('{"cniVersion":"0.3.1","name":"lo","type":"loopback"}')
        (c / "cni-bin").mkdir()
        (c / "cni-bin/loopback").write_text(NO_NETWORK)
        (c / "cni-bin/loopback").chmod(0o755)
        self.containerd = undo.enter_context(containerd.PrivateContainerd(c, config=CONFIG, prefix=self._prefix))
        for hierarchy in Path("/sys/fs/cgroup").iterdir() if _is_hybrid() else [Path("/sys/fs/cgroup")]:
            if hierarchy.is_dir():
                (hierarchy / self.containerd.cgroup).mkdir(exist_ok=True)
        image = folder / "image.tar"
        make_image(image)
        self.containerd.ctr("images", "import", str(image), namespace="k8s.io")
        undo.callback(self.end)
        self.start()

    def start(self) -> None:
        time.sleep(1.0 - time.time() % 1.0)  # heartbeats have whole seconds: none of an earlier kubelet is as late
        f, started_s = self._folder, int(time.time())
        endpoint = f"unix://{self.containerd.socket}"
        config = f / "kubelet.json"
        config.write_text(json.dumps(configuration(self.containerd.cgroup, endpoint, free_port())))
        with (f / "kubelet.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._prefix,
                    str(binaries() / "kubelet"),
                    f"--kubeconfig={self._plane.kubeconfig('admin-token')}",
                    f"--config={config}",
                    f"--hostname-override={self.name}",
                    f"--root-dir={f}/kubelet",
                    f"--cert-dir={f}/pki",
                    "--resolv-conf=",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_for(lambda: self._is_ready(started_s), "the kubelet is ready", 120)

    def _is_ready(self, since_s: float) -> bool:
        """It says so itself: a kubelet that was killed stays ready in the API server for a while."""
        process = self._process
        assert process is not None
        assert process.poll() is None, (self._folder / "kubelet.log").read_text()[-3000:]
        nodes = self._plane.admin.get(f"/api/v1/nodes?fieldSelector=metadata.name={self.name}")["items"]
        conditions = [one for node in nodes for one in node["status"].get("conditions", ())]
        ready = [one for one in conditions if one["type"] == "Ready" and one["status"] == "True"]
        beats_s = [datetime.fromisoformat(one["lastHeartbeatTime"]).timestamp() for one in ready]
        return any(beat_s >= since_s for beat_s in beats_s)

    def end(self) -> None:
        """Containers go on running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self._undo.close()


def configuration(cgroup: str, endpoint: str, port: int) -> dict[str, Any]:
    """A KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupRoot": f"/{cgroup}",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "makeIPTablesUtilChains": False,
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "evictionHard": {},
        "containerRuntimeEndpoint": endpoint,
        "failCgroupV1": False,  # this machine may be a hybrid one
    }


def pod(name: str, places: int, node: str = "") -> dict[str, Any]:
    """A Pod that sleeps, and asks for `places` of carico.dev/pods."""
    asked = {"carico.dev/pods": str(places)}
    container = {
        "name": "c",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sleep", "10000"],
        "resources": {"limits": asked, "requests": asked},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            **({"nodeName": node} if node else {}),
        },
    }


def make_image(path: Path, name: str = IMAGE, more: Callable[[tarfile.TarFile], object] = bool) -> None:
    """An image as `docker save` would write it: one layer with a static busybox and what `more` adds."""
    layer = _tar(
        lambda tar: [
            *map(tar.addfile, _folders("bin", "proc", "dev", "sys", "tmp", "etc")),
            tar.add(shutil.which("busybox") or "", "bin/busybox"),
            more(tar),
        ]
    )
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    entry = {"Entrypoint": ["/bin/busybox", "sleep", "100000"]}
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = json.dumps({"architecture": machine, "os": "linux", "config": entry, "rootfs": layers}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    files = {"config.json": config, "layer.tar": layer, "manifest.json": manifest}
    path.write_bytes(_tar(lambda tar: [_add(tar, name, data) for name, data in files.items()]))


def _tar(fill: Callable[[tarfile.TarFile], object]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        fill(tar)
    return whole.getvalue()


def _folders(*names: str) -> list[tarfile.TarInfo]:
    found = [tarfile.TarInfo(name) for name in names]
    for entry in found:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return found


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _mount_namespace(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that keeps one open; see above what is different in it."""
    steps = ["mount -t tmpfs none /var/lib", "mount -t tmpfs none /var/log"]
    for key, value in KERNEL.items():
        file = folder / key.replace("/", "-")
        file.write_text(f"{value}\n")
        steps.append(f"mount --bind {file} /proc/sys/{key}")
    ready = folder / "apart"
    script = " && ".join([*steps, f"touch {ready}", "exec sleep 100000"])
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script])
    wait_for(ready.exists, "the mount namespace is made", 10)
    return holder


def _is_hybrid() -> bool:
    return not Path("/sys/fs/cgroup/cgroup.controllers").exists()
