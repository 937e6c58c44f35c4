"""A Go that is new enough: the one on $PATH, or Debian's unpacked into the cache."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SWITCHING = (1, 21)
"""From this version on Go downloads and verifies the newer toolchain that a module asks for, unless GOTOOLCHAIN says
`local`."""


@dataclass(frozen=True)
class Go:
    path: str
    version: str
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [self.path, *arguments]

    def env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


def toolchain(wanted: str, folder: Path) -> Go:
    """At least version `wanted`. Raises LookupError with what to do when there is none."""
    here = on_path(wanted)
    if isinstance(here, Go):
        return here
    print(f"kube: {here}; unpacking Debian's Go into {folder}", flush=True)
    script = subprocess.run([HERE / "golang.sh", folder, wanted], capture_output=True, text=True, check=False)
    path = folder / "root/bin/go"
    if script.returncode or not path.exists():
        why = (script.stderr.strip() or "it does not run").splitlines()[-1]
        raise LookupError(
            f"{here}, and Debian's cannot be used ({why}). Put a newer `go` on PATH, or set KUBEBUILDER_ASSETS to a "
            "folder with etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl and kubelet"
        )
    # A user without Go has no folders of Go's either: they are kept with the rest of the cache, to be removed with it.
    own = {"GOROOT": str(folder / "root"), "GOPATH": str(folder / "path"), "GOCACHE": str(folder / "build")}
    return Go(str(path), _version(str(path)), {**own, "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw"})


def on_path(wanted: str) -> Go | str:
    """The Go of this machine, or why it cannot be used."""
    path = shutil.which("go")
    if path is None:
        return "there is no Go on PATH"
    version = _version(path)
    switches = number(version) >= SWITCHING and _env(path, "GOTOOLCHAIN") != "local"
    if number(version) >= number(wanted) or switches:
        return Go(path, version)
    return f"{path} is {version or 'unknown'}, Go {wanted} or newer is needed"


def number(version: str) -> tuple[int, ...]:
    """
    >>> number("go1.26.8") >= number("1.26") > number("go1.9rc1")
    True
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0, 0)


def _version(path: str) -> str:
    return _env(path, "GOVERSION")


def _env(path: str, name: str) -> str:
    answer = subprocess.run([path, "env", name], cwd="/", capture_output=True, text=True, check=False)
    return answer.stdout.strip()
