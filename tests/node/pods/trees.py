"""Fake roots: proc/ and sys/fs/cgroup as v2, v1 and hybrid machines have them."""

from pathlib import Path

UID = "0a1b2c3d-1111-2222-3333-444455556666"
ID = "f" * 64
V1 = {"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct", "memory": "memory"}

POD_PATHS = {
    "systemd": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
        f"cri-containerd-{ID}.scope",
    ),
    "cgroupfs": (f"/kubepods/burstable/pod{UID}", ID),
    "nested": (
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
        f"cri-containerd-{ID}.scope/init.scope",
    ),
}


class FakeRoot:
    def __init__(self, root: Path, mode: str) -> None:
        self.root, self.mode = root, mode
        mount = root / "sys/fs/cgroup"
        self.mounts = {"v2": {"": mount}, "v1": {}, "hybrid": {"": mount / "unified"}}[mode]
        if mode != "v2":
            self.mounts |= {name: mount / folder for name, folder in V1.items()}
        for path in self.mounts.values():
            path.mkdir(parents=True, exist_ok=True)
        if "" in self.mounts:
            (self.mounts[""] / "cgroup.controllers").write_text("cpu memory\n" if mode == "v2" else "\n")
        if mode != "v2":
            (mount / "cpu").symlink_to("cpu,cpuacct")
        (root / "proc").mkdir(parents=True)
        (root / "proc/stat").write_text("cpu 1 2 3 4\nbtime 1700000000\n")

    def process(self, pid: int, path: str) -> None:
        folder = self.root / f"proc/{pid}"
        folder.mkdir()
        lines = {
            "v2": [f"0::{path}"],
            "v1": [f"4:memory:{path}", f"3:cpu,cpuacct:{path}"],
            "hybrid": [f"4:memory:{path}", f"3:cpu,cpuacct:{path}", f"0::{path}"],
        }[self.mode]
        (folder / "cgroup").write_text("\n".join(lines) + "\n")
        (folder / "stat").write_text(f"{pid} (a b) c) S " + " ".join(["0"] * 18) + " 4200 0 0\n")

    def group(self, path: str, usage_usec: int = 1000) -> None:
        """A cgroup with the files its hierarchy offers."""
        for name, mount in self.mounts.items():
            folder = mount / path.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in self._files(name, usage_usec).items():
                (folder / file).write_text(text)

    def _files(self, name: str, usage_usec: int) -> dict[str, str]:
        pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
        if name == "":
            files = {"cpu.pressure": pressure.format(70), "memory.pressure": pressure.format(80)}
            if self.mode == "v2":
                files["cpu.stat"] = (
                    f"usage_usec {usage_usec}\nuser_usec 1\nsystem_usec 1\n"
                    "nr_periods 10\nnr_throttled 4\nthrottled_usec 99\n"
                )
                files["memory.current"] = "4096\n"
            return files
        return {
            "cpu": {"cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 99000\n"},
            "cpuacct": {"cpuacct.usage": f"{usage_usec * 1000}\n"},
            "memory": {"memory.usage_in_bytes": "4096\n"},
        }[name]
