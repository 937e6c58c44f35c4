"""Finds plugins: those installed (entry points of the group `carico_agent.plugins`) and those in the site folder.

A site plugin is a folder `NAME/` with an `__init__.py` that has a class `Plugin`. The folder's content runs as the
agent, so it and every folder above must belong to the agent's user or root, and no other user may write to them.
"""

import importlib.util
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from carico_agent.plugin_api import Plugin, Refuse

GROUP = "carico_agent.plugins"


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plugin that could be loaded; nothing of it has run yet."""

    name: str
    origin: str
    load: Callable[[], type[Plugin]]


def find(site_folder: str | os.PathLike[str] | None = None) -> dict[str, FoundPlugin]:
    """All plugins by name; one in the site folder replaces an installed one of the same name."""
    found = {point.name: FoundPlugin(point.name, point.value, point.load) for point in entry_points(group=GROUP)}
    found.update({item.name: item for item in _site_plugins(Path(site_folder))} if site_folder else {})
    return dict(sorted(found.items()))


def _site_plugins(folder: Path) -> Iterator[FoundPlugin]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if (folder / name / "__init__.py").is_file() and name.isidentifier():
            yield FoundPlugin(name, str(folder / name), lambda path=folder / name: _load_site(path))  # type: ignore[misc]


def _load_site(path: Path) -> type[Plugin]:
    if problem := unsafe(path):
        raise Refuse(problem)
    module = _import(f"carico_site_plugins.{path.name}", path)
    kind = getattr(module, "Plugin", None)
    if not isinstance(kind, type) or not issubclass(kind, Plugin):
        raise Refuse(f"{path}/__init__.py has no class Plugin(carico_agent.plugin_api.Plugin)")
    return kind


def _import(name: str, path: Path) -> ModuleType:
    parent = sys.modules.setdefault("carico_site_plugins", ModuleType("carico_site_plugins"))
    parent.__path__ = []
    spec = importlib.util.spec_from_file_location(name, path / "__init__.py", submodule_search_locations=[str(path)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def unsafe(path: Path) -> str | None:
    """Why code under `path` must not be run by us, or None. A user who may rename a folder above may replace what is in
    it, so all of them count; only a sticky one (the temporary folder) may be everybody's."""
    path = path.absolute()
    for item in (*path.parents, path, *path.rglob("*")):
        found = item.lstat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{item} belongs to user {found.st_uid}, not to root or the agent"
        if stat.S_ISLNK(found.st_mode):
            return f"{item} is a link; put the plugin itself there"
        for bit, who in ((stat.S_IWOTH, "every user"), (stat.S_IWGRP, f"group {found.st_gid}")):
            if found.st_mode & bit and not (found.st_mode & stat.S_ISVTX and item.is_dir()):
                return f"{item} can be written by {who}: chmod go-w"
    return None
