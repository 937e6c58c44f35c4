"""The hash of the code that a result was made with: results of other code say nothing about this one."""

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

TREE = Path(__file__).parents[2]


def files_of(paths: Iterable[str], tree: Path = TREE, skip: Collection[str] = ()) -> Iterator[Path]:
    """All Python files of folders and files, given relative to the tree, but those named in `skip`."""
    for name in paths:
        path = tree / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.name not in skip:
                yield file


def bytes_hash(files: Iterable[Path]) -> str:
    """Of every byte."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def code_hash(files: Iterable[Path]) -> str:
    """Without comments and docstrings: better words change no result."""
    return hashlib.sha256("".join(_code(file.read_text()) for file in files).encode()).hexdigest()[:12]


def _code(source: str) -> str:
    tree = ast.parse(source)
    for one in ast.walk(tree):
        body = getattr(one, "body", None)
        if isinstance(body, list):  # a string alone is a docstring
            body[:] = [
                line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
    return ast.dump(tree)
