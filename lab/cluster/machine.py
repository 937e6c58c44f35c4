"""One virtual machine: QEMU without KVM, on user networking, its console in a file.

Why no KVM: where this project is developed /dev/kvm exists and does not boot a guest. Emulation runs everywhere.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONSOLE = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 loglevel=3 oops=panic panic=-1 no_timer_check"
"""no_timer_check: on a busy host an emulated timer may be late, and the kernel then panics at boot: "IO-APIC + timer
doesn't work"."""


@dataclass(frozen=True)
class Network:
    """QEMU's user network of machine `number`: the guest reaches the host's loopback at `host`."""

    number: int

    @property
    def host(self) -> str:
        return f"10.1.{self.number}.2"

    @property
    def guest(self) -> str:
        return f"10.1.{self.number}.15"

    @property
    def pods(self) -> str:
        return f"10.2.{self.number}.0/24"

    def option(self, forwards: dict[int, int]) -> str:
        """`forwards`: a port of the host's loopback to a port of the guest."""
        opened = "".join(f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in forwards.items())
        return f"user,model=virtio-net-pci,net=10.1.{self.number}.0/24,host={self.host},dhcpstart={self.guest}{opened}"


@dataclass(frozen=True)
class VirtualMachine:
    """What one boot needs. `disk` is a qcow2 file that the guest writes; `files` a tar archive for its second disk."""

    kernel: Path
    initrd: Path
    disk: Path
    files: Path
    console: Path
    network: Network
    memory_mb: int = 1024
    cpus: int = 2

    @property
    def shell(self) -> Path:
        """A socket with a root shell of the guest behind it."""
        return self.disk.with_name("shell.sock")

    def start(self, forwards: dict[int, int] | None = None) -> "subprocess.Popen[bytes]":
        command = [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-smp", str(self.cpus), "-m", str(self.memory_mb)),
            *("-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{self.console}"),
            *("-serial", f"unix:{self.shell},server=on,wait=off"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initrd), "-append", CONSOLE),
            # A node is thrown away after a crash of the host: no write has to reach its disk.
            *("-drive", f"file={self.disk},if=virtio,format=qcow2,cache=unsafe"),
            *("-drive", f"file={self.files},if=virtio,format=raw,readonly=on"),
            *("-nic", self.network.option(forwards or {})),
            *("-device", "virtio-rng-pci"),
        ]
        with self.console.with_suffix(".qemu").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.disk.parent)},
            )


def overlay(base: Path, disk: Path) -> None:
    """`disk` holds what differs from `base`, which stays as it is."""
    workload = "qcow2" if base.suffix == ".qcow2" else "raw"
    make = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", workload, str(disk)]
    subprocess.run(make, check=True)
