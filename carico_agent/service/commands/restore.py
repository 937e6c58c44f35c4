"""restore every cgroup value that the agent has changed, and give back seats of the control plane

Reads the journal. Does not touch a value that another program has changed since. Refuses while an agent uses the
journal. Also gives back seats that `carico plane` still holds back (it writes a note of them).

examples:
  carico restore
  carico restore --journal /var/lib/carico/journal
"""

import argparse
import asyncio
from collections.abc import Iterable
from pathlib import Path

from carico_agent.command import add_config, complain, load_settings
from carico_agent.service.drop import as_owner
from carico_agent.service.units import PLANE_STATE


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--journal", metavar="FILE", help="the journal (default: where the configuration says)")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    from carico_agent.node.plugin_host.journal import JournalBusy
    from carico_agent.node.plugin_host.restore import restore

    try:
        done = restore(given.journal or settings.journal_path)
    except (JournalBusy, OSError) as error:
        complain(str(error))
        return 1
    for item in done:
        print(f"{item.entry.knob.cgroup}/{item.entry.knob.key}: {item.how} {item.detail}".rstrip())
    seats, failed = give_seats_back([settings.state_path, PLANE_STATE])
    for line in seats:
        print(line)
    if not done and not seats and not failed:
        print("nothing to restore")
    return int(failed or any(item.how == "failed" for item in done))


def give_seats_back(folders: Iterable[Path]) -> tuple[list[str], bool]:
    """What was done about the notes in these folders, and whether something is left. A note names a kubeconfig, which
    may name a command: root does nothing with the notes of a service's user but under that user's rights."""
    seats, failed = [], False
    for folder in dict.fromkeys(folders):
        if not (folder / "plane-reserve.json").exists():
            continue
        from carico_agent.lib.kube.errors import KubeError
        from carico_agent.plane.reserve import give_back

        def work(place: Path) -> str:
            return asyncio.run(give_back(place))

        try:
            seats.append(as_owner(folder, work, (KubeError, OSError, ValueError)))
        except OSError as error:
            complain(f"could not give seats back: {error}")
            failed = True
    return seats, failed
