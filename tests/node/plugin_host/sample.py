"""Prints a plugin's sample configuration from its declared settings: `python -m tests.node.plugin_host.sample NAME`.

A development tool (it looks at the settings machinery, which plugins do not); the tests compare its output.
"""

import importlib
import sys

from carico_agent.settings import example_table


def sample(name: str) -> str:
    kind = importlib.import_module(f"plugins.{name}").Plugin
    head = f"""\
# For the agent's configuration, where each table may stand only once. Every value below is the default.
[plugins]
enabled = ["{name}"]
dry_run = true  # false: really write

"""
    return head + example_table(f"plugins.settings.{name}", kind.Settings)


if __name__ == "__main__":
    sys.stdout.write(sample(sys.argv[1]))
