"""memory.min and memory.low of the groups above protected Pods: the kernel gives a group no more than its parent has.

Each group above gets the sum of what is protected below it, so that all of it is effective at once. The writer raises
parents before children and lowers children before parents.
"""

import os
from collections.abc import Sequence

from carico_agent.plugin_api import Change, View, Writer

Place = tuple[str, int, str]
"""Folder, inode and file."""


def above(cgroup: str, root: str) -> list[str]:
    """The groups between a Pod's and the root, the nearest first.

    >>> above("/cg/kubepods/burstable/pod1", "/cg")
    ['/cg/kubepods/burstable', '/cg/kubepods']
    """
    found, parent = [], os.path.dirname(cgroup)
    while parent.startswith(root.rstrip("/") + "/"):
        found.append(parent)
        parent = os.path.dirname(parent)
    return found


def protect_above(wanted: Sequence[Change], view: View, writer: Writer) -> list[Change]:
    """What the groups above need for these Pods. A group that another program protects enough already is left alone."""
    sums: dict[tuple[str, str], int] = {}
    for change in wanted:
        for group in above(change.cgroup, view.node.cgroup_root):
            sums[group, change.key] = sums.get((group, change.key), 0) + int(change.value)
    made = []
    for (group, key), total in sums.items():
        inode = _inode(group)
        if inode is None:
            continue
        ours = writer.original(group, inode, key) is not None
        if ours or has(view, group, key) < total:
            made.append(Change(group, inode, key, str(total), "the sum of what is protected below it"))
    return made


def has(view: View, group: str, key: str) -> int:
    """Bytes that are protected there now."""
    text = view.read(group, key) or "0"
    return 1 << 62 if text == "max" else int(text)


def ineffective(change: Change, view: View) -> str:
    """Why the kernel gives a Pod less than it was promised, or nothing."""
    for group in above(change.cgroup, view.node.cgroup_root):
        if (got := has(view, group, change.key)) < int(change.value):
            return f"{change.key} has no effect: {group} has {change.key} = {got}"
    return ""


def _inode(group: str) -> int | None:
    try:
        return os.stat(group).st_ino
    except OSError:  # it has just ended
        return None
