"""Boots a virtual cgroup v2 node and runs guests there, one after the other: `python -m tests.vm [GUEST.py …]`.

Unless files are named: a new user's first minutes and the service (tests/vm/service), then the plugins (tests/vm).

The image is built once into ~/.cache/carico/node (or $CARICO_CACHE/node), the wheels are fetched once into the same
place; each run starts from the same disk. No KVM, no network in the guest. Without QEMU or mmdebstrap it says
what is missing and ends with 0: nothing was proven, nothing has failed.
"""

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.support.wheels import needed_by

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
NEEDED = ("qemu-system-x86_64", "mmdebstrap", "mke2fs")
TIMEOUT_S = 3000  # on a busy machine TCG gets what is left: at a load of 9 on two cores both guests took half an hour
GUESTS = (ROOT / "tests/vm/service/guest.py", HERE / "guest.py")
RUN = "systemctl stop serial-getty@ttyS0.service\nexec > /dev/ttyS0 2>&1\n"
"""A getty that starts meanwhile hangs up the console, and with it the script's output."""


def missing() -> str:
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if os.geteuid() != 0:
        return "the image is built as root"
    return f"not installed: {', '.join(absent)} (Debian: qemu-system-x86 mmdebstrap e2fsprogs)" if absent else ""


def run(*command: str, cwd: Path = ROOT) -> str:
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def payload(cache: Path, work: Path, guests: tuple[Path, ...]) -> Path:
    """The second disk: the wheel of this tree, its dependencies, and the scripts that run there."""
    folder = work / "payload"
    folder.mkdir()
    copy = work / "tree"  # setuptools writes into the tree it builds
    skip = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", ".*_cache", "out")
    shutil.copytree(ROOT, copy, ignore=skip)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(copy))
    shutil.copytree(
        needed_by(next(folder.glob("*.whl")), cache), folder / "wheels", ignore=shutil.ignore_patterns("carico*")
    )
    for path in (HERE / "write.conf", ROOT / "systemd/carico-agent.service"):
        shutil.copy(path, folder)
    for number, guest in enumerate(guests):
        shutil.copy(guest, folder / f"guest{number}.py")
    (folder / "run.sh").write_text(RUN + "".join(f"python3 /payload/guest{n}.py\n" for n in range(len(guests))))
    disk = work / "payload.ext4"
    run("truncate", "-s", "256M", str(disk))
    run("mke2fs", "-q", "-t", "ext4", "-d", str(folder), str(disk))
    return disk


def boot(image: Path, disk: Path, work: Path, guests: int) -> int:
    """Run the machine; its console is our output. Returns 0 only if every guest says PASSED."""
    machine = subprocess.Popen(
        [
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "2",
            "-cpu",
            "max",
            "-m",
            "2048",
            "-nographic",
            "-no-reboot",
            "-nic",
            "none",
            "-kernel",
            str(image / "vmlinuz"),
            "-initrd",
            str(image / "initrd"),
            "-append",
            "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 loglevel=3 oops=panic panic=-1 no_timer_check",
            "-drive",
            f"file={image}/disk.ext4,if=virtio,format=raw,snapshot=on",
            "-drive",
            f"file={disk},if=virtio,format=raw,readonly=on",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(work)},
    )
    assert machine.stdout is not None
    passed, end_s, rest = 0, time.monotonic() + TIMEOUT_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(machine.stdout, selectors.EVENT_READ)
        while time.monotonic() < end_s:
            if not selector.select(timeout=1.0):
                continue
            piece = os.read(machine.stdout.fileno(), 65536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                passed += text.endswith("RESULT PASSED")
                print(text, flush=True)
    if machine.poll() is None:
        machine.terminate()
        machine.wait(10)
    return 0 if passed == guests else 1


def main(*given: Path) -> int:
    guests = given or GUESTS
    if why := missing():
        print(f"test-node: skipped, nothing was checked: {why}")
        return 0
    cache = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache/carico") / "node"
    cache.mkdir(parents=True, exist_ok=True)
    image = Path(run(str(ROOT / "lab/vm/image.sh"), str(cache)))
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        return boot(image, payload(cache, Path(folder), guests), Path(folder), len(guests))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
