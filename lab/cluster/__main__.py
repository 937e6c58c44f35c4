"""`python -m lab.cluster up | down | summary`: a whole cluster on this machine (make cluster)."""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from lab.cluster import node_image, processes
from lab.cluster.cluster import OneMachineCluster, kwok_binary, stop_command
from lab.support.control_plane import binaries


def missing() -> str:
    """Why no cluster can run here; empty when one can."""
    if find_spec("aiohttp") is None:
        return f"{sys.executable} lacks the packages of the agents; use .venv/bin/python, which `make cluster` makes"
    try:
        folder = binaries()
    except LookupError as error:
        return str(error)
    parts = [folder / name for name in ("kube-controller-manager", "kubectl")] + [kwok_binary()]
    absent = [str(path) for path in parts if not os.access(path, os.X_OK)]
    return f"not there: {', '.join(absent)}" if absent else ""


def up(folder: Path, kwok_nodes: int, real_nodes: int) -> int:
    if folder.exists() and processes.running(folder):
        print(f"a cluster runs already: {folder} ({stop_command(folder)} ends it)")
        return 1
    if why := missing():
        print(f"cluster: cannot start: {why}", file=sys.stderr)
        return 1
    cluster = OneMachineCluster(folder, kwok_nodes, real_nodes)
    cluster.down()  # what a crash has left
    complete = False
    try:
        cluster.up()
        complete = True
    finally:
        if not complete:
            print("cluster: did not come up, and is taken down again", file=sys.stderr)
            cluster.down()
    return 0


def down(folder: Path) -> int:
    count = OneMachineCluster(folder).down()
    print(f"cluster: {count} processes ended, {folder} removed" if count else "cluster: none was running")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.cluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "summary"))
    parser.add_argument("--folder", type=Path, default=node_image.cache() / "run", help="where the cluster lives")
    parser.add_argument("--kwok-nodes", type=int, default=3, metavar="N")
    parser.add_argument("--real-nodes", type=int, default=1, metavar="N", help="virtual machines")
    given = parser.parse_args()
    if given.command == "up":
        return up(given.folder, given.kwok_nodes, given.real_nodes)
    if given.command == "down":
        return down(given.folder)
    print((given.folder / "summary").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
