"""What became of plugins' requests: counted for /metrics, the last ones kept for /v1/plugins."""

from collections import Counter, deque

from carico_agent.plugin_api import Outcome, State

KEPT_OUTCOMES = 50
KEPT_LATEST = 1000


class OutcomeLog:
    """Every outcome is counted; only those that differ from the file's last one are kept to be shown."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """(plugin, file, state) → how many."""
        self.recent: deque[tuple[str, Outcome]] = deque(maxlen=KEPT_OUTCOMES)
        self._latest: dict[tuple[str, str], tuple[State, str]] = {}

    def add(self, plugin: str, outcome: Outcome) -> None:
        self.counts[plugin, outcome.change.key, outcome.state] += 1
        file, latest = (outcome.change.cgroup, outcome.change.key), (outcome.state, outcome.change.value)
        if self._latest.get(file) != latest:
            if len(self._latest) > KEPT_LATEST:
                self._latest.clear()
            self._latest[file] = latest
            self.recent.append((plugin, outcome))
