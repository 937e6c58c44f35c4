"""What a run of the tests has left out and why, in at most ten lines at its end: `pytest -p tests.left_out`.

The lines count what was skipped by reason, and what the run did not select by marker, with the command that runs it.
"""

import re
from collections import Counter
from typing import Any

import pytest

COMMANDS = {
    "kube": "make test-kube: a real control plane",
    "cluster": "make test-cluster: virtual machines",
    "alone": "make test-all: not beside other tests",
    "long": "make test-all: takes seconds",
}
"""Marker → the command that runs its tests; a test with several counts for the first."""
MOST = 10


class LeftOut:
    def __init__(self) -> None:
        self.unselected: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Any:
        found = list(items)
        result = yield
        kept = set(items)
        for item in found:
            if item not in kept:
                self.unselected[next((name for name in COMMANDS if item.get_closest_marker(name)), "")] += 1
        if hasattr(config, "workeroutput"):
            config.workeroutput["unselected"] = dict(self.unselected)
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
        for line in lines(Counter(skipped), self.unselected):
            terminalreporter.write_line(line)


class OfWorkers:
    """Every worker of pytest-xdist selects by itself, and all of them alike: one is asked."""

    def __init__(self, left_out: LeftOut) -> None:
        self._left_out = left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left_out.unselected = Counter(getattr(node, "workeroutput", {}).get("unselected", {}))


def pytest_configure(config: pytest.Config) -> None:
    left_out = LeftOut()
    config.pluginmanager.register(left_out)
    config.pluginmanager.register(OfWorkers(left_out))


def lines(skipped: Counter[str], unselected: Counter[str]) -> list[str]:
    """At most ten, the most frequent first.

    >>> lines(Counter({"Skipped: no chromium": 3}), Counter({"kube": 158}))
    ['left out:', '  158  make test-kube: a real control plane', '    3  skipped: no chromium']
    """
    found = [(count, COMMANDS[name]) for name, count in unselected.most_common() if name]
    found += [(count, f"skipped: {re.sub('^Skipped: ', '', why)}") for why, count in skipped.most_common()]
    if not found:
        return []
    shown = [f"{count:5d}  {why}"[:120] for count, why in found]
    if len(shown) >= MOST:
        more = sum(count for count, _ in found[MOST - 2 :])
        shown = [*shown[: MOST - 2], f"{more:5d}  more, for other reasons: pytest -rs names them"]
    return ["left out:", *shown]
