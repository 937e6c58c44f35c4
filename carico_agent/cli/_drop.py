"""Work that root does with what a service's user has written: in a child process, with that user's rights only."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def as_owner(folder: Path, work: Callable[[Path], str], expected: tuple[type[Exception], ...]) -> str:
    """What `work` returns of this folder; raises OSError with the text of an `expected` error.

    As root, and in a folder of another user, `work` runs in a child that has given up root's rights, and sees the
    folder as its working directory: the folders above it may be closed to that user (/var/lib/private).
    """
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        try:
            return work(folder)
        except expected as error:
            raise OSError(str(error)) from error
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_in_child(folder, owner, work, expected, writing))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise OSError(f"{folder}: the child process for user {owner.st_uid} ended without an answer")
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        raise OSError(str(answer["error"]))
    return str(answer["done"])


def _in_child(
    folder: Path,
    owner: os.stat_result,
    work: Callable[[Path], str],
    expected: tuple[type[Exception], ...],
    writing: int,
) -> int:
    os.umask(0o077)
    os.chdir(folder)
    os.setgroups([])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    try:
        answer = {"done": work(Path())}
    except expected as error:
        answer = {"error": str(error)}
    os.write(writing, json.dumps(answer).encode())
    return 0
