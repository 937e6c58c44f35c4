"""install carico as a service: user, units, configuration, started

Needs root and systemd. Installs the units of the agent and the servers (aggregator, extender, plane), the user carico
and a configuration (an existing one is kept), and starts the agent. It prints every step; --dry-run only prints them.
When a step fails, the steps before it are undone. `carico uninstall` removes all of it.

examples:
  carico install --systemd --dry-run
  carico install --systemd
  carico install --systemd --tuning --containerd
"""

import argparse
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from carico_agent.command import complain, load_settings
from carico_agent.node.plugin_host.restore_zipapp import zipapp
from carico_agent.service.units import (
    AGENT,
    BOOTED,
    CONFIG,
    DROP_INS,
    RESTORE,
    UNITS,
    CannotInstall,
    ServiceOptions,
    inside,
    installed,
    plan,
    under,
)
from carico_agent.settings import Settings, example

AFTERWARDS = (
    ("systemd-sysusers", "/etc/sysusers.d/carico.conf"),
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", AGENT),
    ("systemctl", "restart", AGENT),
)
USER = "carico"
SHIPPED = "carico_plugins."
"""Where the entry points of our own plugins lead."""
TUNING_IS_ROOT = "--tuning: CAP_DAC_OVERRIDE opens every file to the agent: an attacker in it is as good as root"
CONTAINERD_IS_ROOT = (
    "--containerd: a process that may write to containerd's socket is as good as root, and so is the agent"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--systemd", action="store_true", required=True, help="install systemd services (the only choice)"
    )
    parser.add_argument(
        "--tuning",
        action="store_true",
        help="let plugins write to cgroups, and `carico restore` after every stop. Needs CAP_DAC_OVERRIDE, which opens "
        "every file of this machine: the agent is then as good as root",
    )
    parser.add_argument(
        "--containerd",
        action="store_true",
        help="let the agent receive containerd's events; its socket is as good as root",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, do nothing")
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        type=Path,
        default=Path("/"),
        help="install into this folder (an image) and start nothing",
    )


def run(given: argparse.Namespace) -> int:
    fresh = not under(given.root, CONFIG).exists()
    settings = load_settings(None if fresh else str(under(given.root, CONFIG)))
    if settings is None:
        return 1
    try:
        options = ServiceOptions(
            own_command(), given.tuning, given.containerd, alone(settings), lasting=given.root == Path("/")
        )
        written: dict[Path, str | bytes] = dict(plan(options))
    except CannotInstall as error:
        complain(str(error))
        return 1
    live = given.root == Path("/")
    refused = cannot_start() if live else ""
    if live and not refused and os.geteuid() and not given.dry_run:
        refused = "installing needs root; --dry-run shows what it would do"
    if refused and not given.dry_run:
        complain(f"{refused}. Nothing was written")
        return 1
    for chosen, rights in ((options.tuning, TUNING_IS_ROOT), (options.containerd, CONTAINERD_IS_ROOT)):
        if chosen:
            print(rights)
    if fresh:
        written[CONFIG] = example()
    if options.tuning:
        written[RESTORE] = zipapp()
    stale = [path for path in installed(given.root) if path.parent == DROP_INS and path not in written]
    stale += [path for path in installed(given.root) if path == RESTORE and not options.tuning]
    new_user = not has_user()
    try:
        before = put_down(given.root, written, stale, given.dry_run)
    except OSError as error:
        complain(f"{error}; installing needs root" if os.geteuid() else str(error))
        return 1
    if not live:
        return 0
    code = after(AFTERWARDS, given.dry_run)
    if given.dry_run and refused:
        complain(f"it would be refused: {refused}")
        return 1
    if given.dry_run:
        return code
    if code:
        undo(before, new_user)
        return code
    if options.loopback_only:
        print("systemd denies traffic beyond loopback: the configuration needs none; install again when it does")
    print(f"done: try `{options.carico} status` as root, or as a member of the group carico")
    return 0


def cannot_start() -> str:
    """Why no service can be started on this machine; empty when one can."""
    if BOOTED.is_dir():
        return ""
    return (
        f"systemd does not run this machine (there is no {BOOTED}): run `carico agent` by other means, "
        "or install into the folder of an image with --root"
    )


def has_user() -> bool:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def undo(before: Mapping[Path, bytes | None], new_user: bool) -> None:
    """All or nothing: a step after the files has failed. Undoing goes on where one of its own steps fails."""
    complain("the steps before it are undone")
    commands = [("systemctl", "disable", "--now", AGENT)] if before.get(UNITS / AGENT, b"") is None else []
    _run_all(commands)
    put_back(before)
    _run_all([("systemctl", "daemon-reload"), *([("userdel", USER)] if new_user and has_user() else [])])


def _run_all(commands: Sequence[tuple[str, ...]]) -> None:
    for command in commands:
        print(f"run {shlex.join(command)}", flush=True)
        with suppress(FileNotFoundError):
            subprocess.run(command, check=False)


def alone(settings: Settings) -> bool:
    """Whether the agent opens no connection beyond this machine. The shipped plugins open none, either;
    others may."""
    kubernetes = settings.kubernetes.enabled or settings.kubernetes.kubeconfig  # a kubeconfig switches it on
    beyond = kubernetes, settings.federation.aggregators, settings.listen.address, settings.page.listen
    if any(beyond) or not settings.plugins.enabled:
        return not any(beyond)
    from carico_agent.node.plugin_host.load import find

    found = find(settings.plugins.site_folder)
    return all(name in found and found[name].origin.startswith(SHIPPED) for name in settings.plugins.enabled)


def own_command() -> Path:
    """The `carico` beside the running Python, or the one in the PATH."""
    beside = Path(sys.executable).with_name("carico")
    found = str(beside) if beside.exists() else shutil.which("carico")
    if found is None:
        raise CannotInstall("there is no `carico` command here: run `pip install .` in carico's source tree")
    return Path(found).absolute()


def put_down(
    root: Path, written: Mapping[Path, str | bytes], stale: list[Path], dry_run: bool
) -> dict[Path, bytes | None]:
    """What each file held before, None where there was none. When one cannot be written, all are as before."""
    would, before = "would " if dry_run else "", dict[Path, bytes | None]()
    removed = [(inside(root, path, itself=False), None) for path in stale]
    content = [(inside(root, path), text.encode() if isinstance(text, str) else text) for path, text in written.items()]
    try:
        for place, data in [*removed, *content]:
            print(f"{would}{'remove' if data is None else 'write'} {place}")
            if dry_run:
                continue
            old = place.read_bytes() if place.exists() else None
            place.parent.mkdir(parents=True, exist_ok=True)
            before[place] = old
            _write(place, data)
    except OSError:
        put_back(before)
        raise
    return before


def put_back(before: Mapping[Path, bytes | None]) -> None:
    for place, data in before.items():
        print(f"{'remove' if data is None else 'put back'} {place}")
        _write(place, data)
        with suppress(OSError):  # it holds other files, too
            if data is None and place.parent.name.startswith("carico"):
                place.parent.rmdir()


def _write(place: Path, data: bytes | None) -> None:
    """None removes the file."""
    if data is None:
        place.unlink(missing_ok=True)
        return
    place.write_bytes(data)
    place.chmod(0o644)


def after(commands: tuple[tuple[str, ...], ...], dry_run: bool) -> int:
    """Run each command, saying so; stops at the first that fails."""
    for command in commands:
        print(f"{'would ' if dry_run else ''}run {shlex.join(command)}", flush=True)
        if dry_run:
            continue
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            complain(f"there is no {command[0]}: is this a machine with systemd?")
            return 1
        except subprocess.CalledProcessError as error:
            complain(f"{shlex.join(command)} ended with {error.returncode}; see `journalctl -u {AGENT}`")
            return 1
    return 0
