"""remove what `carico install` installed

Stops the services (which restores cgroup values and seats) and removes their units. Keeps the configuration, what was
learned and the user, unless --purge is given.

examples:
  carico uninstall --dry-run
  carico uninstall --purge
"""

import argparse
import os
import shutil
from contextlib import suppress
from pathlib import Path

from carico_agent.command import complain
from carico_agent.service.commands.install import USER, after, has_user
from carico_agent.service.commands.restore import give_seats_back
from carico_agent.service.units import BOOTED, CONFIG, PLANE_STATE, SERVICES, inside, installed, under

LEARNED = (Path("/var/lib/carico"), Path("/var/lib/carico-aggregator"), PLANE_STATE)
PRIVATE = tuple(Path("/var/lib/private") / path.name for path in LEARNED)
"""Where systemd really keeps the state of a service with DynamicUser=yes; the name above is then a link."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--purge", action="store_true", help="also remove the configuration, what was learned, and the user"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, do nothing")
    parser.add_argument("--root", metavar="FOLDER", type=Path, default=Path("/"), help="uninstall from this folder")


def run(given: argparse.Namespace) -> int:
    found = installed(given.root)
    if not found:
        print("no service of carico is installed here")
    live = given.root == Path("/") and bool(found) and BOOTED.is_dir()  # without systemd there are only files
    services = [service for service in SERVICES if any(path.name == service for path in found)]
    if live and after((("systemctl", "disable", "--now", *services),), given.dry_run):
        return 1
    if not given.dry_run and given.root == Path("/"):  # an image has no seats, and may be anybody's
        lines, failed = give_seats_back(LEARNED)
        print("\n".join(lines), end="\n" if lines else "")
        if failed:
            return 1
    try:
        take_away(given.root, found, given.purge, given.dry_run)
    except OSError as error:
        complain(f"{error}; uninstalling needs root" if os.geteuid() else str(error))
        return 1
    afterwards = [("systemctl", "daemon-reload")] if live else []
    if given.purge and given.root == Path("/") and has_user():
        afterwards.append(("userdel", USER))
    return after(tuple(afterwards), given.dry_run)


def take_away(root: Path, found: list[Path], purge: bool, dry_run: bool) -> None:
    would = "would " if dry_run else ""
    for path in [*found, *([CONFIG, *LEARNED, *PRIVATE] if purge else [])]:
        place = inside(root, path, itself=False)
        if not os.path.lexists(place):
            continue
        print(f"{would}remove {place}")
        if dry_run:
            continue
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
            with suppress(OSError):  # others have put files of their own beside ours
                if place.parent.name.startswith("carico"):
                    place.parent.rmdir()
    if not purge:
        kept = [str(under(root, path)) for path in (CONFIG, *LEARNED) if under(root, path).exists()]
        if kept:
            print(f"kept: {' '.join(kept)} (--purge removes them and the user carico)")
