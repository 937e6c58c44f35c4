"""What users of KRR, VPA and Goldilocks expect of `carico recommend`: limits, ranges, selection, totals, formats."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.cli import main
from carico_agent.recommend.advice import Recommendation, advise
from carico_agent.recommend.commands._output import patch, resize
from carico_agent.recommend.method import AllowedRange, Options
from carico_agent.recommend.savings import savings, severity, sort, total
from carico_agent.recommend.workload import OwnerObject, Resources
from tests.conftest import TREE
from tests.recommend.test_advice import history
from tests.recommend.test_command import PODS, result, trace

GIB = 2**30
BURSTABLE = Resources(0.5, GIB, 2.0, 2 * GIB, "Burstable")
GUARANTEED = Resources(1.0, GIB, 1.0, GIB, "Guaranteed")


def recommended(current: Resources = BURSTABLE, name: str = "web", replicas: int = 3, **how: Any) -> Recommendation:
    workload = OwnerObject("shop", "Deployment", name)
    return advise(workload, "app", (f"{name}-1",), (history(),), current, options=Options(**how), replicas=replicas)


def resources(row: Recommendation) -> Any:
    body = json.loads(patch([row]).split("'")[1])
    return body["spec"]["template"]["spec"]["containers"][0]["resources"]


def test_limits_are_left_kept_in_proportion_or_dropped() -> None:
    assert "limits" not in resources(recommended())
    row = recommended(cpu_limit="proportional", memory_limit="proportional")
    assert row.cpu.request is not None and row.cpu.limit == pytest.approx(4 * row.cpu.request, abs=0.001)
    assert row.memory.request is not None and row.memory.limit == pytest.approx(2 * row.memory.request, abs=2**20)
    dropped = recommended(cpu_limit="none")
    assert resources(dropped)["limits"] == {"cpu": None} and "is dropped, as asked" in "; ".join(dropped.cpu.why)
    assert "a resize cannot drop a limit" in resize([dropped])
    assert "limits" not in resources(recommended(Resources(0.5, GIB), cpu_limit="none"))  # there is none to drop


def test_a_dropped_limit_ends_guaranteed() -> None:
    """The memory limit then stays what it is."""
    row = recommended(GUARANTEED, cpu_limit="none")
    assert resources(row)["limits"] == {"cpu": None} and row.memory.limit is None
    assert recommended(GUARANTEED).cpu.limit == recommended(GUARANTEED).cpu.request


def test_ranges_per_container() -> None:
    least, most = AllowedRange("app", "cpu", least=3.0), AllowedRange("*", "memory", most=64 * 2**20)
    row = recommended(allowed=(least, most))
    assert (row.cpu.request, row.memory.request) == (3.0, 64 * 2**20)
    assert "the least allowed for this container" in row.cpu.why[-2] and "the most allowed" in row.memory.why[-1]
    assert recommended(allowed=(AllowedRange("side", "cpu", least=3.0),)).cpu.request != 3.0


def test_savings_count_every_replica() -> None:
    row = recommended(Resources(4.0, 4 * GIB))
    assert row.cpu.request is not None and savings(row).saved_cores == pytest.approx(3 * (4.0 - row.cpu.request))
    unset = recommended(Resources(), name="new")
    found = total([row, row, unset])
    assert found.unknown == 1 and found.current_cores == 24.0
    assert (severity(row), severity(unset)) == ("critical", "warning")
    fine = recommended(Resources(row.cpu.request, row.memory.request), name="fine")
    assert severity(fine) == "good"
    assert [one.workload.name for one in sort([fine, unset, row], "severity")] == ["web", "new", "fine"]
    assert sort([fine, row], "memory-savings")[0] is row


def test_guaranteed_stands_beside_burstable() -> None:
    row = recommended()
    cores, size = row.guaranteed
    assert cores is not None and size is not None and row.cpu.request is not None and row.memory.request is not None
    assert cores >= row.cpu.request and size >= row.memory.request and row.cpu.limit is None


# ---- the command


@pytest.fixture
def one(tmp_path: Path) -> str:
    return trace(tmp_path / "one.trace.gz", PODS[0])


def test_tables_for_other_programs(one: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(result(capsys, "--json", "--trace", one))
    assert yaml.safe_load(result(capsys, "-o", "yaml", "--trace", one)) == data
    app, side = csv.DictReader(io.StringIO(result(capsys, "-o", "csv", "--trace", one)))
    assert (app["workload"], app["container"], app["replicas"]) == ("web", "app", "1")
    assert float(app["cpu_request"]) == 0.25 and side["cpu_request"] == "" and float(app["horizon_s"]) == 8 * 86_400
    assert float(app["cpu_recommended"]) == data["recommendations"][0]["cpu"]["recommended_cores"]
    assert data["total"]["not_counted"] == 1 and data["total"]["current_cores"] == 0.25
    wide = result(capsys, "-o", "wide", "--trace", one)
    assert "GUARANTEED CPU" in wide and "in total, 1 of 2 containers with a request now: 0.25 →" in wide


def test_namespaces(one: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(json.loads(result(capsys, "--json", "--trace", one, "-n", "sh*"))["recommendations"]) == 2
    for words in (["-n", "other"], ["--not-namespace", "shop"]):
        assert main(["recommend", "--trace", one, *words]) == 1
        assert "has been observed" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["walk", "arima"])
@pytest.mark.parametrize("output", ["patch", "vpa", "json-patch"])
def test_a_forecast_of_minutes_is_no_template(
    one: str, method: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "--trace", one, "--method", method, "-o", output]) == 2
    assert "answers for the next 5 minutes, and a template stays for days" in capsys.readouterr().err
    assert "for the next 5 minutes: resize with them" in result(capsys, "--trace", one, "--method", method)
    assert "--subresource resize" in result(capsys, "--trace", one, "--method", method, "-o", "resize")


def test_wrong_choices(one: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--guaranteed", "--cpu-limit", "none"], "a Guaranteed Pod has limits"),
        (["--min-cpu", "2", "--max-cpu", "1"], "--min-cpu is above --max-cpu"),
        (["--watch", "-o", "patch"], "a patch is applied once"),
    ):
        assert main(["recommend", "--trace", one, *words]) == 2
        assert said in capsys.readouterr().err
    text = result(capsys, "--trace", one, "-o", "json-patch")
    assert text.startswith("# shop/web: the place of app, side in the template is not known; add --cluster")


def test_the_page_shows_what_the_sample_trace_gives(capsys: pytest.CaptureFixture[str]) -> None:
    page = (TREE / "docs/recommend.md").read_text()
    assert result(capsys, "--trace", str(TREE / "docs/shop.trace.gz")).rstrip() in page


def test_watch_prints_again(one: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def sleep(nap_s: float) -> None:
        naps.append(nap_s)
        if len(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("carico_agent.recommend.commands.recommend.time.sleep", sleep)
    assert main(["recommend", "--trace", one, "--watch", "5m"]) == 130
    assert naps == [300.0, 300.0] and capsys.readouterr().out.count("WORKLOAD") == 2
