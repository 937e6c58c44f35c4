"""What a configuration names and this machine does not have: plugins, groups, files, sockets.

Why apart from the settings: they are right or wrong on any machine, and an agent may well start before containerd does.
`carico check-config` is asked about one machine.
"""

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from carico_agent.lib.declare import BadSettings, suggest
from carico_agent.node.plugin_host.host import PluginHost
from carico_agent.node.plugin_host.view import ViewMaker
from carico_agent.settings import Settings


def missing_here(settings: Settings) -> list[str]:
    """One complaint for each, with the path of its setting."""
    return [*_root(settings), *_group(settings), *_files(settings), *_sockets(settings), *_plugins(settings)]


def _root(settings: Settings) -> Iterator[str]:
    root = Path(settings.node.root)
    if not (root / "proc/stat").exists():
        yield f"node.root: {root} has no proc/stat: the folder that the host's / is mounted at is expected"


def _group(settings: Settings) -> Iterator[str]:
    groups = [entry.gr_name for entry in grp.getgrall()]
    if settings.socket.group and settings.socket.group not in groups:
        yield f"socket.group: there is no group {settings.socket.group!r} here{_near(settings.socket.group, groups)}"


def _near(name: str, known: list[str]) -> str:
    """Groups are many: all of them would help no reader."""
    said = suggest(name, known)
    return said if "did you mean" in said else ""


def _files(settings: Settings) -> Iterator[str]:
    named = {
        "kubernetes.kubeconfig": settings.kubernetes.kubeconfig,
        "listen.tls_cert": settings.listen.tls_cert,
        "listen.tls_key": settings.listen.tls_key,
        "listen.tls_ca": settings.listen.tls_ca,
        "page.token_file": settings.page.token_file,
        "federation.tls_ca": settings.federation.tls_ca,
        "federation.tls_cert": settings.federation.tls_cert,
        "federation.tls_key": settings.federation.tls_key,
    }
    for setting, file in named.items():
        if file and not Path(file).exists():
            yield f"{setting}: {file} does not exist"
        elif file and not os.access(file, os.R_OK):
            yield f"{setting}: {file} cannot be read by this user"


def _sockets(settings: Settings) -> Iterator[str]:
    path = settings.containerd.socket
    if not path or not settings.containerd.enabled:
        return
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            yield f"containerd.socket: {path} is not a socket"
    except OSError as error:
        yield f"containerd.socket: {path}: {error.strerror}"


def _plugins(settings: Settings) -> Iterator[str]:
    """As the agent builds them when it starts; nothing of them runs."""
    nothing = ViewMaker(dict, dict, dict, settings.node.root)
    try:
        host = PluginHost(settings.plugins, nothing, settings.journal_path, settings.node.root)
    except BadSettings as bad:
        yield from bad.errors
        return
    for name, why in host.refused.items():
        yield f"plugins.enabled: {name}: {why}"
