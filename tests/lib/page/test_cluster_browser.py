"""The cluster's page in a real Chromium, in front of an invented cluster (lab/support/sample_cluster.py)."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.support.browser import errors, missing, open_browser, screen, serious_findings
from lab.support.sample_node import HOSTILE
from tests.conftest import TREE
from tests.lib.page.test_browser import text, wait

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.long]

StartCluster = Callable[..., tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    started: list[subprocess.Popen[str]] = []

    def start(nodes: int, port: int = 0, *arguments: str) -> tuple[str, subprocess.Popen[str]]:
        command = [sys.executable, "-m", "lab.support.sample_cluster", str(nodes), str(port), *arguments]
        process = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip(), process

    yield start
    for process in started:
        process.kill()
        process.wait()


def count(browser: Any, selector: str) -> int:
    found: int = browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)
    return found


def is_live(browser: Any) -> bool:
    return text(browser, "#connection") == "live" and text(browser, "#capacity")[:1].isdigit()


def first_rows(browser: Any, column: int) -> list[str]:
    script = "return [...document.querySelectorAll('#nodes tbody tr:not(.space)')].slice(0, 5)"
    found: list[str] = browser.execute_script(f"{script}.map((row) => row.cells[arguments[0]].textContent)", column)
    return found


def press(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_every_node_counts_once_and_expired_ones_not_at_all(browser: Any, start_cluster: StartCluster) -> None:
    browser.get(start_cluster(60)[0])
    wait(lambda: is_live(browser))
    ask = "return fetch('/v1/cluster').then((given) => given.json())"
    nodes = browser.execute_script(ask)["nodes"]
    assert len(nodes["name"]) == 60
    assert nodes["state"].count("stale") == 3 and nodes["state"].count("unknown") == 2
    assert re.search(r"Nodes60.*Number expired3No number2", text(browser, "#facts"))
    assert "3 have not published in time" in text(browser, "#sentence")
    legend = [int(one) for one in re.findall(r": (\d+)", browser.find_element("id", "heat-legend").text)]
    assert sum(legend) == 60
    room = [int(one) for one in first_rows(browser, 1)]
    assert room == sorted(room, reverse=True), "most room first"
    assert errors(browser) == []


def test_sorting_finding_and_where_a_workload_fits(browser: Any, start_cluster: StartCluster) -> None:
    browser.get(start_cluster(60)[0])
    wait(lambda: is_live(browser))
    press(browser, "#nodes button[data-sort=name]")
    assert first_rows(browser, 0) == ["pool-a-0", "pool-a-3", "pool-a-6", "pool-a-9", "pool-a-12"], "9 before 12"
    press(browser, "#nodes button[data-sort=name]")
    assert text(browser, "#nodes th[aria-sort=descending]") == "Node"
    assert first_rows(browser, 0)[0] == "pool-c-59"
    browser.find_element("id", "find").send_keys("-1")
    wait(lambda: text(browser, "#shown") == "11 of 60 nodes")
    browser.find_element("id", "find").clear()
    press(browser, "#workloads button[data-workload='batch/training']")
    wait(lambda: "batch/training" in text(browser, "#capacity-unit"))
    assert text(browser, "#nodes th[aria-sort=descending]") == "More of batch/training"
    assert "CPU runs out" in text(browser, "#nodes tbody")
    press(browser, "#all-workloads")
    wait(lambda: text(browser, "#capacity-unit") == "more Pods fit")
    assert errors(browser) == []


def test_five_thousand_nodes_are_a_hundred_rows(browser: Any, start_cluster: StartCluster) -> None:
    """What keeps scrolling light. How long frames take is measured by lab/bench/page.py."""
    browser.get(start_cluster(5000)[0])
    wait(lambda: is_live(browser))
    assert text(browser, "#shown") == "5,000 nodes"
    browser.execute_script("document.getElementById('nodes-scroll').scrollTop = 1e9")
    wait(lambda: browser.execute_script("return document.querySelector('#nodes [aria-rowindex=\"5001\"]') !== null"))
    assert count(browser, "#nodes tr") < 100
    assert count(browser, "#heat path") <= 7
    assert errors(browser) == []


def test_a_restart_is_shown_and_mended(browser: Any, start_cluster: StartCluster) -> None:
    address, process = start_cluster(3)
    browser.get(address)
    wait(lambda: is_live(browser))
    process.kill()
    process.wait()
    wait(lambda: "connection lost" in text(browser, "#connection"))
    start_cluster(4, int(address.rstrip("/").rpartition(":")[2]))
    wait(lambda: is_live(browser) and text(browser, "#shown") == "4 nodes")
    assert all("/v1/" in message for message in errors(browser)), "only requests that nobody answered"


def test_hostile_names_are_text_and_their_workloads_can_be_chosen(browser: Any, start_cluster: StartCluster) -> None:
    browser.get(start_cluster(20, 0, "--hostile")[0])
    wait(lambda: is_live(browser))
    for selector in ("#workloads", "#nodes", "#sentence"):
        assert HOSTILE in text(browser, selector), selector
    press(browser, "#workloads tbody button")
    wait(lambda: HOSTILE in text(browser, "#capacity-unit"))
    assert "runs out" in text(browser, "#nodes tbody")
    assert count(browser, "img, main script") == 0
    assert errors(browser) == []


def test_without_scripts_the_numbers_are_a_table(tmp_path: Path, start_cluster: StartCluster) -> None:
    address, _ = start_cluster(20, 0, "--hostile")
    with open_browser(tmp_path / "profile", scripts=False) as browser:
        browser.get(address)
        shown = browser.find_element("css selector", "main.plain").text
        assert re.search(r"\d+ more Pods fit on \d+ of 20 nodes", shown)
        assert f"pool-a-0{HOSTILE}" in shown and f"shop/web{HOSTILE}" in shown
        assert not browser.find_elements("css selector", "img, main script")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_on_every_screen(browser: Any, start_cluster: StartCluster, width: int, dark: bool) -> None:
    """Nothing sticks out, and axe-core finds nothing serious (contrast among it)."""
    screen(browser, width, 900, dark)
    browser.get(start_cluster(200)[0])
    wait(lambda: is_live(browser))
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert not serious_findings(browser)
