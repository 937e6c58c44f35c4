"""put back every cgroup value the agent has changed

Reads the journal; a value that somebody else has changed since is left alone. Refuses while an agent is using it.

examples:
  carico restore
  carico restore --journal /var/lib/carico/journal
"""

import argparse

from carico_agent.cli._common import add_config, complain, load_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--journal", metavar="FILE", help="the journal (default: where the configuration says)")


def run(given: argparse.Namespace) -> int:
    settings = load_settings(given.config)
    if settings is None:
        return 2
    from carico_agent.plugin_host.journal import JournalBusy
    from carico_agent.plugin_host.restore import restore

    try:
        done = restore(given.journal or settings.journal_path)
    except (JournalBusy, OSError) as error:
        complain(str(error))
        return 1
    for item in done:
        print(f"{item.entry.knob.cgroup}/{item.entry.knob.key}: {item.how} {item.detail}".rstrip())
    if not done:
        print("nothing to put back")
    return int(any(item.how == "failed" for item in done))
