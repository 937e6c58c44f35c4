"""Puts container images into the root folder of a node, not yet a disk: `python -m lab.cluster.preload ROOT BASE.tar`.

A containerd of this machine unpacks them, with ROOT/var/lib/containerd as its store: in an emulated machine the same
takes two minutes, here some seconds.
"""

import sys
import tempfile
from pathlib import Path

from lab.cluster.container_image import write_base, write_busybox
from lab.support.containerd import NEWER, PrivateContainerd

CONFIG = """\
version = 3
root = "{root}/var/lib/containerd"
state = "{{folder}}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{{folder}}/c.sock"
"""


def preload(root: Path, base: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="carico-") as name:
        folder = Path(name)
        write_busybox(folder / "busybox.tar")
        write_base(folder / "base.tar", base)
        with PrivateContainerd(folder, NEWER, CONFIG.format(root=root)) as containerd:
            for image in ("busybox", "base"):
                containerd.ctr("images", "import", str(folder / f"{image}.tar"), namespace="k8s.io")


if __name__ == "__main__":
    preload(Path(sys.argv[1]), Path(sys.argv[2]))
