"""The table of parts that are built from Go modules (kube_versions.toml), and where each one is kept.

A part is up to date when its folder has every program with the stamp of the pinned module and version.
"""

import json
import os
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Part:
    name: str
    module: str
    version: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    """What `packages` become, in the same order."""
    use: str
    beside: tuple[str, ...] = ()
    """Parts whose programs are put into the same folder."""
    stamp: tuple[str, ...] = ()
    """Go variables that the linker sets to the version."""
    asked: dict[str, str] = field(default_factory=dict)
    """By program: arguments with which it ends at once, without an error, where `--version` does not do that."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        packages = tuple(row.pop("packages"))
        programs = tuple(row.pop("programs", None) or (package.rpartition("/")[2] for package in packages))
        lists = {key: tuple(row.pop(key, ())) for key in ("beside", "stamp")}
        return cls(packages=packages, programs=programs, **lists, **row)

    @property
    def pin(self) -> str:
        return f"{self.module}@{self.version}"

    @property
    def is_kubernetes(self) -> bool:
        return self.module == "k8s.io/kubernetes"

    @property
    def folder(self) -> Path:
        return cache_folder() / self.name

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def missing(self) -> list[str]:
        """Programs that are not there in the pinned version."""
        built = self.built()
        return [
            name for name in self.programs if built.get(name) != self.pin or not os.access(self.bin / name, os.X_OK)
        ]

    def built(self) -> dict[str, str]:
        """What the builder wrote down: program → module@version."""
        try:
            return dict(json.loads((self.folder / "built.json").read_text()))
        except (FileNotFoundError, ValueError):
            return {}


def cache_folder() -> Path:
    base = os.environ.get("CARICO_CACHE")
    return (Path(base) if base else Path.home() / ".cache/carico") / "kube"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text())


def parts() -> dict[str, Part]:
    return {row["name"]: Part.of(dict(row)) for row in _table()["part"]}


def part(name: str) -> Part:
    if name not in parts():
        raise LookupError(f"{name} is not in {TABLE.name}; there are {', '.join(parts())}")
    return parts()[name]


def kubernetes() -> Part:
    """The Kubernetes of this run: that of $KUBE (a minor version), or the table's."""
    found = part(os.environ.get("KUBE") or str(_table()["kubernetes"]))
    if not found.is_kubernetes:
        raise LookupError(f"KUBE={found.name} is no version of Kubernetes")
    return found


def go_version() -> str:
    """The oldest Go that builds every part."""
    return str(_table()["go"])


def markdown() -> str:
    """The table as docs/kubernetes.md shows it."""
    rows = ["| part | module | version | used for |", "|---|---|---|---|"]
    for one in parts().values():
        name = f"Kubernetes {one.name}" if one.is_kubernetes else one.name
        rows.append(f"| {name} | `{one.module}` | {one.version} | {one.use} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
