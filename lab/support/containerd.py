"""A private containerd for tests and the lab: own root, state and socket in a folder, nothing shared, nothing left.

Debian's `containerd`, `runc` and `busybox-static` are enough; nothing is installed from here. A containerd 2.x lies
beside them where `make tools` could fetch one (Debian testing's, unpacked into the cache). Containers get cgroups
below one directory of their own (`/carico-<random>`), which `stop` removes together with every process and mount.
"""

import functools
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{folder}/c.sock"
"""
NEWER = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache/carico") / "containerd-2/usr/bin"
SLEEP = ("/bin/busybox", "sleep", "100000")


def missing() -> str:
    """Why a private containerd cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "a private containerd needs root"
    absent = [
        name
        for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
        if shutil.which(name) is None
    ]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: containerd runc busybox-static)"
    linked = subprocess.run(["ldd", shutil.which("busybox") or ""], capture_output=True, text=True).returncode == 0
    return "busybox is not static (Debian: busybox-static)" if linked else ""


def missing_newer() -> str:
    """Why a containerd 2.x cannot run here; empty when it can."""
    absent = f"no containerd 2.x that runs in {NEWER} (`make tools` fetches it)"
    return missing() or ("" if _runs(NEWER / "containerd") else absent)


@functools.cache
def _runs(binary: Path) -> bool:
    return binary.exists() and subprocess.run([binary, "--version"], capture_output=True, check=False).returncode == 0


class PrivateContainerd:
    """Use as a context manager. `binaries`: where to look for containerd, its shim and ctr before $PATH; `prefix`: a
    command that runs containerd."""

    def __init__(
        self, folder: Path, binaries: Path | None = None, config: str = CONFIG, prefix: Iterable[str] = ()
    ) -> None:
        self._config, self._prefix = config, tuple(prefix)
        self._path = f"{binaries}:{os.environ['PATH']}" if binaries else os.environ["PATH"]
        self.folder = folder  # short: a socket path has 107 bytes
        self.socket = str(folder / "c.sock")
        self.cgroup = f"carico-{uuid.uuid4().hex[:8]}"
        self.rootfs = folder / "rootfs"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.rootfs / "bin").mkdir(parents=True)
        for name in ("proc", "dev", "sys", "tmp"):
            (self.rootfs / name).mkdir()
        shutil.copy(shutil.which("busybox") or "", self.rootfs / "bin/busybox")
        (self.folder / "config.toml").write_text(self._config.format(folder=self.folder))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self, wait_s: float = 20.0) -> None:
        with open(self.folder / "containerd.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._prefix,
                    self._binary("containerd"),
                    "--config",
                    str(self.folder / "config.toml"),
                    "--log-level",
                    "error",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": self._path},
            )
        deadline_s = time.monotonic() + wait_s
        while self._ctr("version").returncode != 0:
            if time.monotonic() > deadline_s or self._process.poll() is not None:
                raise RuntimeError("containerd did not start: " + (self.folder / "containerd.log").read_text()[-2000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9: containers go on running under their shims."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def run(
        self,
        name: str,
        *command: str,
        namespace: str = "default",
        labels: dict[str, str] | None = None,
        cgroup: str = "",
        flags: Iterable[str] = (),
    ) -> None:
        """Start a container in the background; `flags` are further ones of `ctr run`."""
        extra = [part for key, value in (labels or {}).items() for part in ("--label", f"{key}={value}")]
        path = f"/{self.cgroup}/{cgroup or name}"
        # runc keeps its state in /run/containerd/runc, whatever containerd's own state folder is: give it another one
        self.ctr(
            "run",
            "-d",
            "--null-io",
            "--runc-root",
            str(self.folder / "runc"),
            "--cgroup",
            path,
            *extra,
            *flags,
            "--rootfs",
            str(self.rootfs),
            name,
            *(command or SLEEP),
            namespace=namespace,
        )

    def create(self, name: str, namespace: str = "default") -> None:
        """A container without a task."""
        self.ctr("containers", "create", "--rootfs", str(self.rootfs), name, *SLEEP, namespace=namespace)

    def remove(self, *names: str, namespace: str = "default") -> None:
        """Kill and delete containers, however far they came."""
        for name in names:
            self._ctr("tasks", "kill", "-s", "9", name, namespace=namespace)
            for _ in range(100):
                done = self._ctr("tasks", "delete", name, namespace=namespace)
                if done.returncode == 0 or "not found" in done.stderr:
                    break
                time.sleep(0.02)
            self._ctr("containers", "delete", name, namespace=namespace)

    def ctr(self, *arguments: str, namespace: str = "default") -> str:
        done = self._ctr(*arguments, namespace=namespace)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _ctr(self, *arguments: str, namespace: str = "default") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._binary("ctr"), "-a", self.socket, "-n", namespace, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def _binary(self, name: str) -> str:
        return shutil.which(name, path=self._path) or name

    def stop(self) -> None:
        """End everything this containerd has started, whatever state it is in."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for directory in self._cgroups():  # the containers, by their own cgroup: exact, whoever is their parent
            _kill(_pids(directory))
        _kill(self._shims())
        _retry(lambda: not self._shims() and not any(_pids(d) for d in self._cgroups()))
        for file in (self.folder / "state").glob("io.containerd.runtime.v2.task/*/*/address"):
            Path(file.read_text().removeprefix("unix://")).unlink(missing_ok=True)  # a killed shim leaves its socket
        for mount in reversed(self._mounts()):
            subprocess.run(["umount", "-l", mount], check=False)
        _retry(self._remove_cgroups)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shims(self) -> list[int]:
        """Shims name our socket in their arguments."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"containerd-shim" in arguments[0] and self.socket.encode() in arguments:
                found.append(int(entry.name))
        return found

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [path for line in lines if (path := line.split()[4]).startswith(f"{self.folder}/")]

    def _cgroups(self) -> list[Path]:
        """Our directories in every hierarchy, deepest first."""
        mount = Path("/sys/fs/cgroup")
        tops = [top / self.cgroup for top in (mount, *mount.glob("*")) if (top / self.cgroup).is_dir()]
        return [Path(path) for top in tops for path, _, _ in os.walk(top, topdown=False)]

    def _remove_cgroups(self) -> bool:
        for directory in self._cgroups():
            try:
                directory.rmdir()
            except OSError:
                return False
        return True


def _pids(directory: Path) -> list[int]:
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _retry(done: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline_s = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline_s:
        time.sleep(0.02)
