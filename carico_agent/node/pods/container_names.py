"""What containers outside of Pods are called: the cgroup tree and containerd's `moby` namespace know their ids only.

Docker's record of a container (`config.v2.json`) has its name, labels and image. An agent of root may read it, and so
may the user of a rootless Docker. Everywhere else the command that the container runs names it: /proc/PID/cmdline is
open to every user. It is read when the container is some seconds old, for until then an entrypoint script runs there
that is replaced by the program. Docker's socket has the same answers and is not asked: it is as good as root.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carico_agent.node.pods.plain_processes import arguments_of, script_name
from carico_agent.node.pods.small_files import read_once

RECORDS = ("var/lib/docker/containers", ".local/share/docker/containers")
"""In the root folder, and in the home of the agent's user."""
MAX_RECORD_BYTES = 1 << 20
MIN_AGE_S = 3.0
MAX_LOOKS = 30
"""A container whose command cannot be read is looked at in so many scans, then given up."""
RUNTIMES = frozenset({"runc", "crun", "youki", "runsc", "conmon"})
INITS = frozenset({"docker-init", "tini", "catatonit", "dumb-init", "podman-init"})


@dataclass(frozen=True, slots=True)
class Described:
    """One container; empty: unknown."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


class ContainerNames:
    """Looks only for containers that have no name; for one thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = (str(root / RECORDS[0]), os.path.expanduser(f"~/{RECORDS[1]}"))
        self._looks: dict[str, int] = {}

    def find(self, groups: Mapping[str, tuple[str, str]]) -> dict[str, Described]:
        """`groups`: path -> (container id, its cgroup's folder) of all that have no name; those that have one now."""
        self._looks = {path: self._looks.get(path, 0) for path in groups}
        found = {path: self._describe(path, *groups[path]) for path, looks in self._looks.items() if looks < MAX_LOOKS}
        return {path: described for path, described in found.items() if described is not None}

    def _describe(self, path: str, container: str, folder: str) -> Described | None:
        if (record := self.recorded(container)) is not None or _age_s(folder) < MIN_AGE_S:
            return record
        self._looks[path] += 1
        return self._running(folder)

    def recorded(self, container: str) -> Described | None:
        """What Docker wrote down."""
        for folder in self._folders:
            try:
                return parse_record(read_once(f"{folder}/{container}/config.v2.json", MAX_RECORD_BYTES))
            except (OSError, ValueError):  # not Docker's, not for us, or being written
                continue
        return None

    def _running(self, folder: str) -> Described | None:
        try:
            pids = read_once(f"{folder}/cgroup.procs").split()
        except OSError:  # gone
            return None
        if not pids:
            return None
        name = command_name(arguments_of(int(pids[0]), f"{self._root}/proc"))
        return Described(name) if name else None


def _age_s(folder: str) -> float:
    try:
        return time.time() - os.stat(folder).st_ctime
    except OSError:  # gone
        return 0.0


def parse_record(data: bytes) -> Described:
    """Docker's config.v2.json; raises ValueError.

    >>> parse_record(b'{"Name": "/web-1", "Config": {"Image": "shop/web:2", "Labels": {"a": "b"}}}')
    Described(name='web-1', labels={'a': 'b'}, image='shop/web:2')
    """
    try:
        record = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    config: Any = record.get("Config") if isinstance(record, dict) else None
    if not isinstance(config, dict):
        raise ValueError("no record of a container")
    labels, image = config.get("Labels"), _text(config.get("Image"))
    known = {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}
    return Described(_text(record.get("Name")).lstrip("/"), known, "" if _is_id(image) else image)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_id(image: str) -> bool:
    """Whether an image is given by its content and not by a name."""
    digits = image.removeprefix("sha256:")
    return len(digits) in (12, 64) and set(digits) <= set("0123456789abcdef")


def command_name(arguments: list[str]) -> str:
    """The program or script of a container; empty while the runtime still prepares it.

    >>> command_name(["/sbin/docker-init", "--", "nginx", "-g", "daemon off;"]), command_name(["runc", "init"])
    ('nginx', '')
    >>> command_name(["nginx: master process nginx -g daemon off;"]), command_name(["python3", "/app/train.py"])
    ('nginx', 'train.py')
    """
    words = arguments
    while words and os.path.basename(words[0]) in INITS:
        words = [word for at, word in enumerate(words) if at and not (at == 1 and word == "--")]
        while words and words[0].startswith("-"):
            words = words[1:]
    if not words or os.path.basename(words[0]) in RUNTIMES:
        return ""
    title = words[0].partition(":")[0] if " " in words[0] else words[0]  # a title that the program wrote itself
    return script_name([title, *words[1:]])
