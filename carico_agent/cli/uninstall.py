"""take back what `carico install` did

Stops the services (cgroup values and seats come back) and removes their units. The configuration and what was learned
stay, unless --purge is given.

examples:
  carico uninstall --dry-run
  carico uninstall --purge
"""

import argparse
import os
import shutil
from contextlib import suppress
from pathlib import Path

from carico_agent.cli._common import complain
from carico_agent.cli._units import CONFIG, PLANE_STATE, SERVICES, installed, under
from carico_agent.cli.install import after
from carico_agent.cli.restore import give_seats_back

LEARNED = Path("/var/lib/carico")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--purge", action="store_true", help="also remove the configuration and what was learned")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    parser.add_argument("--root", metavar="FOLDER", type=Path, default=Path("/"), help="uninstall from this folder")


def run(given: argparse.Namespace) -> int:
    found = installed(given.root)
    if not found:
        print("no service of carico is installed here")
    live = given.root == Path("/") and bool(found)
    services = [service for service in SERVICES if any(path.name == service for path in found)]
    if live and after((("systemctl", "disable", "--now", *services),), given.dry_run):
        return 1
    if not given.dry_run:
        said, failed = give_seats_back(under(given.root, folder) for folder in (LEARNED, PLANE_STATE))
        print("\n".join(said), end="\n" if said else "")
        if failed:
            return 1
    try:
        take_away(given.root, found, given.purge, given.dry_run)
    except OSError as error:
        complain(f"{error}; uninstalling needs root" if os.geteuid() else str(error))
        return 1
    return after((("systemctl", "daemon-reload"),), given.dry_run) if live else 0


def take_away(root: Path, found: list[Path], purge: bool, dry_run: bool) -> None:
    would = "would " if dry_run else ""
    for path in [*found, *([CONFIG, LEARNED, PLANE_STATE] if purge else [])]:
        place = under(root, path)
        if not place.exists():
            continue
        print(f"{would}remove {place}")
        if dry_run:
            continue
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
            with suppress(OSError):  # others have put files of their own beside ours
                if place.parent.name.startswith("carico"):
                    place.parent.rmdir()
    if not purge:
        kept = [str(under(root, path)) for path in (CONFIG, LEARNED, PLANE_STATE) if under(root, path).exists()]
        if kept:
            print(f"kept: {' '.join(kept)} (--purge removes them; the user carico stays in any case)")
