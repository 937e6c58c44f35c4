"""The host: settings, refusals, failing and slow plugins, site plugins, start and stop."""

import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Annotated

import pytest

from carico_agent import plugin_api
from carico_agent.lib.supervise.backoff import Backoff
from carico_agent.lib.supervise.ticker import Ticker
from carico_agent.node.plugin_host.host import PluginHost
from carico_agent.node.plugin_host.journal import Journal, Knob
from carico_agent.node.plugin_host.load import FoundPlugin, find
from carico_agent.node.plugin_host.runner import Runner
from carico_agent.plugin_api import Change, Metric, NodeInfo, Range, Refuse, View
from carico_agent.settings import BadSettings, PluginsSettings, parse

from .plugin_fakes import make_cgroup, value_of


@dataclass(frozen=True)
class Nothing:
    """No settings but one."""

    size: Annotated[int, Range(1, 9)] = 1
    """A number."""


class Plain(plugin_api.Plugin):
    name, Settings, period_s = "plain", Nothing, 0.01

    def __init__(self, settings):
        super().__init__(settings)
        self.ticked = threading.Event()

    def tick(self, view, writer):
        self.ticked.set()

    def report(self):
        return {"size": self.settings.size}

    def answer(self, ask):
        return {"asked": dict(ask)}

    def metrics(self):
        yield Metric("things", 3, {"pod": "a"})


def view_of():
    return View(time.monotonic(), NodeInfo(cores=2), (), lambda cgroup, key: None)


def host(tmp_path, *kinds, **settings):
    found = {kind.name: FoundPlugin(kind.name, "here", lambda kind=kind: kind) for kind in kinds}
    fields = {"enabled": tuple(found), "site_folder": "", **settings}
    return PluginHost(PluginsSettings(**fields), view_of, tmp_path / "state/journal", str(tmp_path / "root"), found)


def eventually(check):
    until_s = time.monotonic() + 20
    while not check():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_plugin_runs_reports_and_is_measured(tmp_path):
    made = host(tmp_path, Plain, settings={"plain": {"size": 4}})
    made.start()
    eventually(lambda: made.last_report("plain")["report"] == {"size": 4})
    assert made.answer("plain", {"pod": "x"})["report"] == {"asked": {"pod": "x"}}
    assert made.last_report("unknown") is None and made.answer("unknown", {"pod": "x"}) is None
    assert made.overview()["dry_run"] is True and made.overview()["plugins"][0]["state"] == "running"
    metrics = {m.name: m for m in made.metrics()}
    assert metrics["carico_plugin_up"].value == 1
    assert metrics["carico_plugin_things"].labels == {"plugin": "plain", "pod": "a"}
    made.stop()
    assert not (tmp_path / "state").exists(), "dry-run leaves no trace"


def test_all_errors_of_all_plugins_at_once(tmp_path):
    with pytest.raises(BadSettings) as bad:
        host(tmp_path, Plain, enabled=("plain", "plan"), settings={"plain": {"size": 10, "sise": 1}, "other": {}})
    assert bad.value.errors == [
        "plugins.settings.plain.size: 10 is not between 1 and 9",
        "plugins.settings.plain.sise: unknown key, did you mean size?",
        "plugins.enabled: no plugin plan; there are plain",
        "plugins.settings.other: no plugin of that name",
    ]


def test_the_section_is_part_of_the_settings():
    settings = parse({"plugins": {"enabled": ["plain"], "settings": {"plain": {"size": 2}}}})
    assert settings.plugins.dry_run is True and settings.plugins.settings == {"plain": {"size": 2}}
    assert settings.journal_path.name == "journal"
    with pytest.raises(BadSettings, match=r"plugins.settings: plain: a table is expected"):
        parse({"plugins": {"settings": {"plain": 3}}})


class Refusing(Plain):
    name = "refusing"

    def start(self, view):
        raise Refuse("not on this node")


class Failing(Plain):
    name = "failing"

    def tick(self, view, writer):
        raise RuntimeError("broken")


class Unloadable(Plain):
    name = "unloadable"


def test_refusing_failing_and_unloadable_plugins_are_shown_and_harm_nobody(tmp_path):
    made = host(tmp_path, Refusing, Failing, Plain)
    found = dict(made._found)

    def explode():
        raise ImportError("no module named nothing")

    found["unloadable"] = FoundPlugin("unloadable", "here", explode)
    made = PluginHost(
        PluginsSettings(enabled=tuple(found), site_folder=""), view_of, tmp_path / "journal", str(tmp_path), found
    )
    made.start()

    def states():
        return {row["name"]: (row["state"], row["detail"]) for row in made.overview()["plugins"]}

    eventually(lambda: "starting" not in {state for state, _ in states().values()})
    assert states() == {
        "refusing": ("refused", "not on this node"),
        "failing": ("failing", "RuntimeError: broken"),
        "plain": ("running", ""),
        "unloadable": ("refused", "ImportError: no module named nothing"),
    }
    made.stop()


def test_failures_are_backed_off_and_healing_ends_it():
    plugin = Failing(Nothing())
    runner = Runner(plugin, None, view_of, backoff=Backoff(1, 2, 100, jitter_ratio=0))
    assert [runner.step() for _ in range(4)] == [1, 2, 4, 8]
    plugin.tick = lambda view, writer: None
    assert runner.step() == plugin.period_s and runner.state == "running"
    assert (runner.counts.failures, runner.counts.ticks) == (4, 5)


def test_a_failing_start_is_started_again():
    class Late(Plain):
        starts = 0

        def start(self, view):
            Late.starts += 1
            if Late.starts < 3:
                raise OSError("not yet")

    runner = Runner(Late(Nothing()), None, view_of)
    for _ in range(5):
        runner.step()
    assert Late.starts == 3 and runner.state == "running"


def test_a_slow_tick_counts_as_failure():
    plugin = Plain(Nothing())
    plugin.tick = lambda view, writer: time.sleep(0.05)
    runner = Runner(plugin, None, view_of, deadline_s=0.01)
    assert runner.step() > 1 and runner.counts.overruns == 1 and "more than 0.01 s" in runner.detail


def test_a_hanging_plugin_delays_neither_others_nor_samples_nor_stop(tmp_path):
    go = threading.Event()

    class Hanging(Plain):
        name = "hanging"

        def tick(self, view, writer):
            go.wait(30)

    made, ticker = host(tmp_path, Hanging, Plain), Ticker(0.02, lambda now_s: None)
    sampling = threading.Thread(target=ticker.run)
    sampling.start()
    made.start()
    eventually(lambda: made.runners["plain"].counts.ticks > 5 and ticker.lateness.ticks > 20)
    row = made.overview()["plugins"][0]
    assert row["name"] == "hanging" and row["in_tick_s"] > 0 and row["ticks"] == 0
    assert made.answer("hanging", {"pod": "x"})["report"] == {}
    made.stop(wait_s=0.05)
    ticker.stop()
    sampling.join()
    go.set()


class Writing(Plain):
    name = "writing"
    cgroup, inode = "", 0

    def tick(self, view, writer):
        writer.write([Change(self.cgroup, self.inode, "memory.high", "8192", "test")])


@pytest.fixture
def pod(tmp_path, monkeypatch):
    monkeypatch.setattr(Writing, "inode", make_cgroup(tmp_path / "pod"))
    monkeypatch.setattr(Writing, "cgroup", str(tmp_path / "pod"))
    return tmp_path / "pod"


def test_written_at_work_and_restored_at_stop(tmp_path, pod):
    made = host(tmp_path, Writing, dry_run=False)
    made.start()
    eventually(lambda: made.overview()["recent"])
    assert value_of(pod, "memory.high") == "8192"
    writes = [m for m in made.metrics() if m.name == "carico_cgroup_writes_total"]
    counts = {tuple(sorted(m.labels.items())): m.value for m in writes}
    assert counts[("key", "memory.high"), ("outcome", "written"), ("plugin", "writing")] == 1
    assert made.overview()["recent"][0]["new"] == "8192"
    assert [r.how for r in made.stop()] == ["restored"]
    assert value_of(pod, "memory.high") == "max"
    assert (tmp_path / "state/restore.pyz").exists()


def test_dry_run_shows_and_writes_nothing(tmp_path, pod):
    made = host(tmp_path, Writing)
    made.start()
    eventually(lambda: made.overview()["recent"])
    assert made.overview()["recent"][0]["state"] == "dry-run" and value_of(pod, "memory.high") == "max"
    made.stop()


def test_the_next_start_restores_what_a_crash_left_even_in_dry_run(tmp_path, pod):
    journal = Journal(tmp_path / "state/journal")
    journal.intent(Knob(journal.boot, str(pod), Writing.inode, "memory.high"), "max", "8192", "p", "why")
    journal.close()
    (pod / "memory.high").write_text("8192\n")
    made = host(tmp_path, Plain)
    assert [r.how for r in made.start()] == ["restored"]
    assert value_of(pod, "memory.high") == "max"
    made.stop()


def test_without_a_place_for_the_journal_nothing_is_written(tmp_path, pod, caplog):
    (tmp_path / "state").write_text("a file where the folder should be")
    made = host(tmp_path, Writing, dry_run=False)
    made.start()
    eventually(lambda: made.overview()["recent"])
    assert made.overview()["dry_run"] is True and value_of(pod, "memory.high") == "max"
    assert "the journal cannot be opened, so plugins write nothing" in caplog.text
    made.stop()


SITE = """
from dataclasses import dataclass
from carico_agent import plugin_api
from .inner import VALUE

@dataclass(frozen=True)
class S:
    '''x'''
    a: int = 1
    '''A number.'''

class Plugin(plugin_api.Plugin):
    name, Settings = "mine", S
    def tick(self, view, writer): pass
    def report(self): return {"value": VALUE}
"""


def site(tmp_path, code=SITE):
    folder = tmp_path / "site/mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    (folder / "inner.py").write_text("VALUE = 7\n")
    for path in (tmp_path / "site", folder):
        os.chmod(path, 0o755)
    return tmp_path / "site"


def test_site_plugins_are_found_and_run(tmp_path):
    settings = PluginsSettings(enabled=("mine",), site_folder=str(site(tmp_path)), settings={"mine": {"a": 3}})
    made = PluginHost(settings, view_of, tmp_path / "journal", str(tmp_path))
    made.start()
    eventually(lambda: made.last_report("mine")["report"] == {"value": 7})
    made.stop()
    with pytest.raises(BadSettings, match=r"plugins.settings.mine.a: a whole number is expected"):
        PluginHost(replace(settings, settings={"mine": {"a": "x"}}), view_of, tmp_path / "journal", str(tmp_path))


@pytest.mark.parametrize(
    ("code", "mode", "why"),
    [
        (SITE, 0o777, "can be written by every user"),
        (SITE, 0o775, "can be written by group"),
        ("x = 1", 0o755, "has no class Plugin"),
        ("import nothing_there", 0o755, "nothing_there"),
    ],
)
def test_bad_site_plugins_are_refused(tmp_path, code, mode, why):
    folder = site(tmp_path, code)
    os.chmod(folder / "mine", mode)
    made = PluginHost(
        PluginsSettings(enabled=("mine",), site_folder=str(folder)), view_of, tmp_path / "j", str(tmp_path)
    )
    assert why in made.refused["mine"]


def test_a_site_plugin_below_somebody_elses_folder_is_refused(tmp_path):
    folder = site(tmp_path / "shared")
    os.chmod(tmp_path / "shared", 0o777)
    made = PluginHost(
        PluginsSettings(enabled=("mine",), site_folder=str(folder)), view_of, tmp_path / "j", str(tmp_path)
    )
    assert made.refused["mine"] == f"{tmp_path}/shared can be written by every user: chmod go-w"


def test_a_missing_site_folder_is_no_error(tmp_path):
    assert "mine" not in find(tmp_path / "nowhere")
