"""The way of a sample: as docs/architecture.md lists it, at most fifteen hops, and the loop on one screen."""

import importlib
import inspect
import re
from functools import reduce
from pathlib import Path

from carico_agent.node.agent import Agent

TREE = Path(__file__).parents[2]
MAX_HOPS, SCREEN_LINES = 15, 30
WAY = (
    ("node.sampling.thread", "Live._tick", "grab("),
    ("node.sampling.thread", "Live._tick", "meters.tick("),
    ("node.sampling.thread", "Live._tick", "_queue.put("),
    ("node.sampling.thread", "Live._tick", "_on_update"),
    ("node.agent", "Agent._second", "_inbox.put_from_thread(Notice.SECOND)"),
    ("node.agent", "Agent._loop", "feed.step()"),
    ("node.model_feed", "ModelFeed.step", "self._rows()"),
    ("node.model_feed", "LiveRows.__call__", "interpret("),
    ("node.model_feed", "LiveRows.__call__", "_measurements.take("),
    ("node.model_feed", "ModelFeed.step", "_pipeline.step("),
    ("node.pipeline", "Pipeline.step", "derive("),
    ("node.pipeline", "Pipeline.step", "model.observe("),
    ("node.agent", "Agent._loop", "_statuses.make("),
    ("node.status_maker", "StatusMaker.make", "status_of("),
    ("node.agent", "Agent._loop", "latest.publish("),
)
"""Where a hop is made: module, function, and the call in its source."""


def test_the_documented_way_is_the_way_in_the_code() -> None:
    for module, name, call in WAY:
        function = reduce(getattr, name.split("."), importlib.import_module(f"carico_agent.{module}"))
        assert call in inspect.getsource(function), f"{name} does not call {call}"


def test_a_sample_takes_at_most_fifteen_hops() -> None:
    text = (TREE / "docs/architecture.md").read_text()
    way = text.partition("**A sample.**")[2].partition("**An event.**")[0]
    hops = re.findall(r"^(\d+)\. ", way, re.MULTILINE)
    assert [int(hop) for hop in hops] == list(range(1, len(hops) + 1))
    assert 10 < len(hops) <= MAX_HOPS
    assert way.count("Agent.") == 1, "a sample returns to the agent once"


def test_the_loop_fits_on_one_screen() -> None:
    assert len(inspect.getsource(Agent._loop).splitlines()) <= SCREEN_LINES
