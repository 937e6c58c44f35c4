"""What Pods are called, without a runtime to ask: the kubelet names their log folders NAMESPACE_NAME_UID.

The folder is /var/log/pods on every kubelet. Why not the process's own environment (HOSTNAME) or the runtime's files:
those need root or the Pod's own user, and a host-network Pod has the node's name there. The folder needs the right to
list it; where that is missing the reason is logged, so that settings which select by name are not ignored in silence.
"""

import os
from collections.abc import Collection
from pathlib import Path

FOLDER = "var/log/pods"
CONTAINERS = "var/log/containers"
MAX_LOOKS = 30
"""The cgroup is made before the log folder: a Pod without one is looked for in so many scans, then given up."""


class LogNames:
    """Looks into the folder only while a Pod's name is unknown."""

    def __init__(self, root: Path) -> None:
        self.trouble = ""
        """Why names are missing."""
        self._folder = str(root / FOLDER)
        self._looks: dict[str, int] = {}

    def find(self, uids: set[str]) -> dict[str, tuple[str, str]]:
        """uid -> (namespace, name), of those that are known."""
        self._looks = {uid: min(self._looks.get(uid, 0), MAX_LOOKS) + 1 for uid in uids}
        if all(looks > MAX_LOOKS for looks in self._looks.values()):
            return {}
        try:
            entries = os.listdir(self._folder)
        except OSError as error:
            self.trouble = f"no names in /{FOLDER}: {(error.strerror or 'not readable').lower()}"
            return {}
        self.trouble = f"no folder of theirs in /{FOLDER}"
        split = (entry.rsplit("_", 2) for entry in entries)
        return {part[2]: (part[0], part[1]) for part in split if len(part) == 3 and part[2] in uids}


def container_names(root: Path, ids: Collection[str]) -> dict[str, str]:
    """Container id -> its name in the template, from the links POD_NAMESPACE_NAME-ID.log in /var/log/containers."""
    if not ids:
        return {}
    try:
        links = os.listdir(root / CONTAINERS)
    except OSError:
        return {}
    split = (link.removesuffix(".log").rpartition("_")[2].rpartition("-") for link in links)
    return {part[2]: part[0] for part in split if part[2] in ids and part[0]}
