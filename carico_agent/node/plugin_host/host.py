"""The plugin host: finds, validates, starts and stops plugins, and shows how they are doing.

The agent (node/plugins.py) builds one Host. `overview`, `last_report` and `metrics` never wait and may be called on the
event loop; `answer` runs the plugin's own code, and `start` and `stop` wait for disks: these three are for threads. A
plugin can neither stop the agent nor delay a sample: it has a thread of its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from carico_agent.lib.supervise.tasks import guard_call
from carico_agent.node.plugin_host import restore_zipapp
from carico_agent.node.plugin_host.cgroupfs import CgroupFiles
from carico_agent.node.plugin_host.journal import Journal, JournalBusy
from carico_agent.node.plugin_host.load import FoundPlugin, find
from carico_agent.node.plugin_host.ownership import Ownership
from carico_agent.node.plugin_host.restore import Restored, restore_all
from carico_agent.node.plugin_host.runner import Runner
from carico_agent.node.plugin_host.write_rate import WriteLimits
from carico_agent.node.plugin_host.writer import CgroupWriter, PluginWriter
from carico_agent.plugin_api import Metric, Plugin, Refuse, View
from carico_agent.settings import BadSettings, PluginsSettings, build

log = logging.getLogger(__name__)

VIEW_AGE_S = 0.5
OWNERS_EVERY_S = 300.0


class PluginHost:
    """All plugins of one agent.

    `view_of()` gives the current View (called from plugin threads, at most twice a second). Raises BadSettings at
    once for unknown plugins and bad plugin settings: bad arguments stop the agent from starting, a refusal does not.
    """

    def __init__(
        self,
        settings: PluginsSettings,
        view_of: Callable[[], View],
        journal_path: Path,
        root: str = "/",
        found: Mapping[str, FoundPlugin] | None = None,
    ) -> None:
        self._settings, self._path = settings, journal_path
        self._views = _Shared(view_of)
        self._found = find(settings.site_folder) if found is None else found
        self.refused: dict[str, str] = {}
        self._plugins = self._build()
        self._ownership = Ownership(root)
        self._journal: Journal | None = None
        self.writer: CgroupWriter | None = None
        self.runners: dict[str, Runner] = {}
        self._owners_due_s = time.monotonic() + OWNERS_EVERY_S

    def _build(self) -> list[Plugin]:
        """Instances of the enabled plugins; every error of every plugin at once."""
        errors, made = [], []
        for name in self._settings.enabled:
            if name not in self._found:
                errors.append(f"plugins.enabled: no plugin {name}; there are {', '.join(self._found) or 'none'}")
                continue
            kinds: list[type[Plugin]] = []
            if problem := guard_call(f"plugin {name}", lambda: kinds.append(self._found[name].load())):  # noqa: B023
                self.refused[name] = problem.removeprefix("Refuse: ")
                continue
            try:
                made.append(
                    kinds[0](
                        build(kinds[0].Settings, self._settings.settings.get(name, {}), f"plugins.settings.{name}")
                    )
                )
            except BadSettings as bad:
                errors += bad.errors
            except Refuse as refusal:
                errors.append(f"plugins.settings.{name}: {refusal}")
        errors += [
            f"plugins.settings.{name}: no plugin of that name"
            for name in self._settings.settings
            if name not in self._found
        ]
        if errors:
            raise BadSettings(errors)
        return made

    def start(self) -> list[Restored]:
        """Put back what an earlier life left behind, then start every plugin in its own thread."""
        left_behind = self._open_journal()
        limits = WriteLimits(
            self._settings.write_deadline_s,
            self._settings.rewrite_after_s,
            self._settings.writes_per_minute,
            self._settings.min_step_ratio,
        )
        self.writer = CgroupWriter(self._journal, self._settings.dry_run, limits, self._owner_of)
        for plugin in self._plugins:
            runner = Runner(
                plugin, PluginWriter(plugin.name, self.writer), self._views.get, self._settings.tick_deadline_s
            )
            self.runners[plugin.name] = runner
            runner.launch()
        return left_behind

    def _open_journal(self) -> list[Restored]:
        """Without a journal nothing is written: the agent goes on and says so."""
        if self._settings.dry_run and not self._path.exists():
            return []
        try:
            self._journal = Journal(self._path)
            restore_zipapp.write(self._path.parent)
        except (OSError, JournalBusy) as error:
            log.error("plugins: the journal cannot be opened, so plugins write nothing: %s", error)
            return []
        restored = restore_all(self._journal, CgroupFiles())
        for item in restored:
            log.warning(
                "plugins: %s/%s of an earlier run: %s %s",
                item.entry.knob.cgroup,
                item.entry.knob.key,
                item.how,
                item.detail,
            )
        return restored

    def _owner_of(self, key: str) -> str | None:
        if time.monotonic() >= self._owners_due_s:
            self._owners_due_s = time.monotonic() + OWNERS_EVERY_S
            self._ownership.refresh()
        return self._ownership.owner_of(key)

    def stop(self, wait_s: float = 1.0) -> list[Restored]:
        """Stop the plugins and put everything back; what fails stays in the journal."""
        for runner in self.runners.values():
            runner.stop(wait_s)
        restored = self.writer.stop() if self.writer else []
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        return restored

    # -- what others may ask ------------------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """`/v1/plugins`: every plugin, who owns which file, and the last things written or not."""
        shown = [runner.condition() for runner in self.runners.values()]
        shown += [{"name": name, "state": "refused", "detail": why} for name, why in self.refused.items()]
        idle = [
            {"name": name, "state": "available", "detail": item.origin}
            for name, item in self._found.items()
            if name not in self.runners and name not in self.refused
        ]
        recent = list(self.writer.outcomes.recent) if self.writer else []
        return {
            "dry_run": self.writer.dry_run if self.writer else True,
            "plugins": shown + idle,
            "owners": [
                {"name": o.name, "controllers": list(o.controllers), "why": o.why} for o in self._ownership.owners
            ],
            "recent": [
                {
                    "plugin": plugin,
                    "cgroup": o.change.cgroup,
                    "key": o.change.key,
                    "state": o.state,
                    "old": o.old,
                    "new": o.change.value,
                    "detail": o.detail,
                }
                for plugin, o in recent
            ],
        }

    def last_report(self, name: str) -> dict[str, Any] | None:
        """`/v1/plugins/NAME`, from the plugin's last report; None when there is no such plugin running."""
        runner = self.runners.get(name)
        return None if runner is None else {**runner.condition(), "report": runner.report}

    def answer(self, name: str, question: Mapping[str, str]) -> dict[str, Any] | None:
        """`/v1/plugins/NAME?KEY=VALUE`, answered by the plugin itself; may take as long as the plugin does."""
        runner = self.runners.get(name)
        return None if runner is None else {**runner.condition(), "report": runner.answer(question)}

    def metrics(self) -> Iterator[Metric]:
        """Complete metrics, names and labels as they are to be printed."""
        for name, runner in self.runners.items():
            label = {"plugin": name}
            yield Metric("carico_plugin_up", float(runner.state == "running"), label, "1 while the plugin works.")
            yield Metric(
                "carico_plugin_failures_total", runner.counts.failures, label, "Failed or slow ticks.", "counter"
            )
            yield Metric("carico_plugin_tick_seconds", runner.counts.last_s, label, "Duration of the last tick.")
            for metric in runner.metrics():
                yield Metric(
                    f"carico_plugin_{metric.name}", metric.value, {**label, **metric.labels}, metric.help, metric.kind
                )
        for (plugin, key, state), count in list(self.writer.outcomes.counts.items()) if self.writer else []:
            yield Metric(
                "carico_cgroup_writes_total",
                count,
                {"plugin": plugin, "key": key, "outcome": state},
                "Wishes to write a cgroup file, by what became of them.",
                "counter",
            )


class _Shared:
    """One View for all plugins of the same moment."""

    def __init__(self, view_of: Callable[[], View]) -> None:
        self._view_of, self._lock = view_of, threading.Lock()
        self._view: View | None = None
        self._made_s = 0.0

    def get(self) -> View:
        with self._lock:
            now_s = time.monotonic()
            if self._view is None or now_s - self._made_s > VIEW_AGE_S:
                self._view, self._made_s = self._view_of(), now_s
            return self._view
