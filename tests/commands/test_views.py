"""What people see: status, top, events."""

from dataclasses import replace
from typing import Any

import pytest

from carico_agent.node.commands._choice import Choice, keys_of, press
from carico_agent.node.commands._pods import PodRates, ScreenPod
from carico_agent.node.commands._screen import Past, ScreenView, page_rows, screen, table_of
from carico_agent.node.commands._style import paint
from carico_agent.node.commands.events import describe as describe_event
from carico_agent.node.commands.status import describe
from carico_agent.node.publish.line import human_line
from carico_agent.node.publish.status import Status, WorkloadStatus, from_json

STATUS = from_json(
    {
        "node": "n1",
        "time": "2026-01-02T03:04:05.678Z",
        "sequence": 7,
        "pod_capacity": 3.21,
        "low": 2.9,
        "high": None,
        "slots": 6.21,
        "pods": 3,
        "mode": "measured",
        "limiting": "cpu",
        "usage": {"cpu": 0.52, "memory": None},
        "cost_vector": {"cpu": 0.125, "memory": 0.0},
        "age_s": 0.5,
        "ttl_s": 5.0,
        "runtime": "containerd 1.6",
        "absent": {"cpu.pressure": "cpu.pressure: boot with psi=1"},
    }
)


def test_status_for_humans() -> None:
    result = describe(STATUS, 0.5)
    assert "n1: Pod-Capacity 3.2 [2.9–∞] measured, limited by cpu\n" in result
    assert "52.0% used, the next Pod takes 12.5%\n" in result
    assert "memory   unknown" in result
    assert "boot with psi=1" in result


def test_an_expired_number_is_called_void() -> None:
    assert "no valid number: the last one is 60 s old" in describe(STATUS, 60.0)


def test_an_unknown_number_is_called_unknown() -> None:
    assert "Pod-Capacity unknown" in describe(replace(STATUS, pod_capacity=None), 0.5)


def workload(name: str, pods: int, cpu: float, fits: float, **more: Any) -> WorkloadStatus:
    cost = {"cpu": cpu, "memory": cpu / 2}
    return WorkloadStatus(name, pods, cost, fits, "cpu", low=fits - 0.4, high=fits + 0.4, **{"trusted": True, **more})


MEASURED = replace(
    STATUS,
    pod_capacity=5.2,
    low=4.8,
    high=5.6,
    usage={"cpu": 0.5, "memory": 0.25},
    sizes={"cpu": 4.0, "memory": 4.0 * 2**30},
    host={"cpu": 0.05, "memory": 0.125},
    pods_measured=True,
    workloads=(
        workload("shop/cache", 1, 0.02, 24.3, arrivals=0.1),
        workload("shop/web", 2, 0.1, 5.3, arrivals=0.9),
        workload("kube-system/proxy", 1, 0.01, 50.0, per_node=True),
        workload("shop/new", 0, 0.25, 2.0, trusted=False),
    ),
)
SENTENCE = "room for 5 more like shop/web, 24 like shop/cache; next Pod: 5.2 [4.8–5.6], measured, limited by cpu"


def test_status_with_workloads() -> None:
    first, *result = describe(MEASURED, 0.5).splitlines()
    assert first == f"n1: {SENTENCE}"
    assert "  cpu      2.00 cores wanted of 2, the next Pod takes 0.50 cores" in result
    assert "  host     takes 0.20 cores, 512 MiB" in result
    rows = [" ".join(line.split()) for line in result]
    assert "shop/web 2 5.3 [4.9–5.7] 0.40 cores, 205 MiB 90%, limited by cpu" in rows
    assert "kube-system/proxy 1 50.0 [49.6–50.4] 0.04 cores, 20 MiB per node, limited by cpu" in rows
    assert "shop/new 0 learning 1.00 cores, 512 MiB 0%" in rows


def test_line_with_workloads() -> None:
    assert human_line(MEASURED) == f"03:04:05  cpu 50.0%  memory 25.0%  Pods 3  {SENTENCE}"


def test_more_workloads_than_a_sentence_holds() -> None:
    many = tuple(workload(f"shop/{i}", 1, 0.1, 5.0, arrivals=0.2) for i in range(5))
    assert "5 like shop/2, 2 other workloads; next Pod" in human_line(replace(MEASURED, workloads=many))


def test_a_fresh_node_says_that_it_learns() -> None:
    fresh = Status(node="n1", ttl_s=5.0, pod_capacity=4.0, low=1.3, high=110.0, mode="learning", limiting="cpu")
    result = describe(fresh, 0.5)
    assert "n1: Pod-Capacity 4.0 [1.3–110.0] learning, limited by cpu\n" in result
    assert "no busy Pod has been observed yet: the number assumes that one Pod keeps one core busy" in result
    assert "the number assumes" not in describe(MEASURED, 0.5)
    assert "the agent cannot read memory now: the number assumes" in describe(
        replace(fresh, usage={"cpu": 0.1, "memory": None}), 0.5
    )


def test_a_node_on_which_max_pods_only_slept_says_so() -> None:
    workloads = (
        workload("shop/web", 2, 0.1, 5.3, arrivals=0.4),
        workload("shop/waits", 3, 0.0, 3.9, arrivals=0.6, trusted=False),
    )
    learns = replace(MEASURED, mode="learning", workloads=workloads)
    result = describe(learns, 0.5)
    assert "learning 60% of recent arrivals have not been busy yet, so each is assumed to need one core" in result
    assert "no busy Pod" not in result
    assert "learning the agent does not measure Pods one by one" in describe(
        replace(learns, pods_measured=False, workloads=()), 0.5
    )


PODS = [ScreenPod("shop/web-1", "shop/web", 0.25, 9e6), ScreenPod("shop/a\x1b[2J", "shop/cache", None, None)]


PAST = Past([1.0, 2.0, 4.0], [0.0, 0.5, 1.0], 150.0)


def drawn(view: ScreenView, columns: int, rows: int, coloured: bool = False) -> list[str]:
    return [paint(line, columns - 1, coloured) for line in screen(view, columns, rows)]


@pytest.mark.parametrize("choice", [Choice(), Choice("Pods"), Choice(help=True), Choice(filter="x", typing=True)])
def test_top_fits_the_terminal(choice: Choice) -> None:
    for columns in (20, 40, 80, 200):
        for rows in (5, 12, 24, 60):
            lines = drawn(ScreenView(MEASURED, 0.5, PAST, PODS, choice), columns, rows)
            assert all(len(line) < columns for line in lines)
            assert len(lines) <= rows
            assert lines[-1].startswith(("q quit", "any key", "filter: x"))


def test_top_shows_workloads_pods_and_minutes() -> None:
    lines = drawn(ScreenView(MEASURED, 0.5, PAST, PODS), 140, 50)
    assert SENTENCE in lines
    assert any("◄ limits" in line for line in lines)
    assert any("▓▓▓██" in line for line in lines)
    assert any("▂▄█" in line and "0 to 4.0, last 2 min" in line for line in lines)
    rows = [" ".join(line.split()) for line in lines]
    assert "> shop/web 2 5.3 [4.9–5.7] 0.40 cores 205 MiB 90% cpu" in rows
    pods = drawn(ScreenView(MEASURED, 0.5, PAST, PODS, Choice("Pods")), 140, 50)
    rows = [" ".join(line.split()) for line in pods]
    assert "> shop/web-1 0.25 9 MiB shop/web" in rows
    assert "shop/a?[2J ? ? shop/cache" in rows  # names do not move the cursor


def test_top_in_40_columns_keeps_what_matters() -> None:
    lines = [" ".join(line.split()) for line in drawn(ScreenView(MEASURED, 0.5, PAST, PODS), 40, 24)]
    assert "workload Pods more fit" in lines
    assert "> shop/web 2 5.3" in lines


def test_reservations_are_shown() -> None:
    """Issue 36: they were invisible in `status` and `top`."""
    held = replace(MEASURED, reserved=2, available=3)
    sentence = "room for 2 Pods is held by reservations, 3 more can be reserved"
    assert f"  reserved {sentence}" in describe(held, 0.5).splitlines()
    assert f"reserved: {sentence}" in drawn(ScreenView(held, 0.5), 100, 30)
    assert "reserv" not in describe(MEASURED, 0.5)


def test_colours_can_be_off() -> None:
    view = ScreenView(MEASURED, 0.5, PAST, PODS)
    assert any("\x1b[32m" in line for line in drawn(view, 100, 30, coloured=True))
    assert not any("\x1b" in line for line in drawn(view, 100, 30))


MANY = [ScreenPod(f"shop/web-{i:03d}", "shop/web" if i % 2 else "shop/cache", i / 100, 1e6 * i) for i in range(100)]


def typed(view: ScreenView, text: str, columns: int = 80, rows: int = 24) -> ScreenView:
    for key in keys_of(text):
        page = page_rows(view, columns, rows)
        view = replace(view, choice=press(view.choice, key, table_of(view).names, page))
    return view


def names(view: ScreenView) -> list[str]:
    return [line.split()[0] for line in drawn(view, 80, 24) if line.startswith("  shop/web-")]


def selected(view: ScreenView) -> str:
    return next(line.split()[1] for line in drawn(view, 80, 24) if line.startswith("> "))


def test_top_scrolls() -> None:
    view = typed(ScreenView(MEASURED, 0.5, PAST, MANY), "\tn")
    assert selected(view) == "shop/web-000"
    assert selected(typed(view, "\x1b[B\x1b[Bk")) == "shop/web-001"
    page = page_rows(view, 80, 24)
    assert selected(typed(view, "\x1b[6~")) == f"shop/web-{page:03d}"
    last = typed(view, "G")
    assert selected(last) == "shop/web-099"
    assert any(f"{101 - page}–100 of 100" in line for line in drawn(last, 80, 24))
    assert selected(typed(last, "jjj")) == "shop/web-099"
    assert selected(typed(last, "gk")) == "shop/web-000"
    assert selected(replace(last, pods=MANY[:3])) == "shop/web-002"  # Pods that end take the selection with them


def test_top_filters() -> None:
    view = typed(ScreenView(MEASURED, 0.5, PAST, MANY), "\tn/09")
    assert any(line.startswith("filter: 09_") for line in drawn(view, 80, 24))
    view = typed(view, "q\x7f\r")  # q is a letter here
    assert selected(view) == "shop/web-009"
    assert names(view) == [f"shop/web-{i:03d}" for i in range(90, 100)]
    assert "nothing matches none" in "\n".join(drawn(typed(view, "/\x1b/none\r"), 80, 24))
    assert len(table_of(typed(view, "\x1b")).names) == 100


def test_the_pods_of_a_workload() -> None:
    view = typed(ScreenView(MEASURED, 0.5, PAST, MANY), "j\r")
    assert view.choice.workload == "shop/cache"
    assert set(table_of(view).names) == {f"shop/web-{i:03d}" for i in range(0, 100, 2)}
    assert typed(view, "\x1b").choice == Choice()


def test_any_key_ends_the_help() -> None:
    view = typed(ScreenView(MEASURED, 0.5, PAST, MANY), "?")
    assert any("the Pods of the selected workload" in line for line in drawn(view, 80, 24))
    assert typed(view, "x").choice == Choice()


def test_the_order_is_reversed() -> None:
    view = typed(ScreenView(MEASURED, 0.5, PAST, MANY), "\tmr")
    assert selected(view) == "shop/web-000"
    assert any("memory▲" in line for line in drawn(view, 80, 24))
    assert selected(typed(view, "r")) == "shop/web-099"


@pytest.mark.parametrize(
    ("key", "workloads"),
    [
        ("a", ["shop/web", "shop/cache", "shop/new", "kube-system/proxy"]),
        ("c", ["shop/web", "shop/cache", "kube-system/proxy", "shop/new"]),
        ("n", ["kube-system/proxy", "shop/cache", "shop/new", "shop/web"]),
        ("f", ["shop/web", "shop/cache", "kube-system/proxy", "shop/new"]),
        ("p", ["shop/web", "kube-system/proxy", "shop/cache", "shop/new"]),
    ],
)
def test_top_sorts(key: str, workloads: list[str]) -> None:
    lines = drawn(ScreenView(MEASURED, 0.5, choice=Choice(sort=key)), 120, 50)
    shown = [line[2:].split()[0] for line in lines if line[2:].startswith(tuple(workloads))]
    assert shown == workloads


@pytest.mark.parametrize(
    ("key", "names"), [("a", ["n/b", "n/c", "n/a"]), ("m", ["n/c", "n/a", "n/b"]), ("n", ["n/a", "n/b", "n/c"])]
)
def test_top_sorts_pods(key: str, names: list[str]) -> None:
    pods = [ScreenPod("n/a", "k", 0.1, 2e6), ScreenPod("n/b", "k", 0.9, 1e6), ScreenPod("n/c", "k", 0.5, 3e6)]
    lines = drawn(ScreenView(STATUS, 0.5, pods=pods, choice=Choice("Pods", key)), 120, 50)
    assert [line[2:].split()[0] for line in lines if line[2:].startswith("n/")] == names


def test_what_pods_use_lies_between_two_readings() -> None:
    def body(t: float, usec: int | None, started: float = 1.0) -> dict[str, Any]:
        usage = None if usec is None else {"t": t, "cpu_usage_usec": usec, "memory_current": 5}
        return {"namespace": "shop", "name": "web", "workload": "shop/web", "started": started, "usage": usage}

    rates = PodRates()
    steps = [body(1.0, 0), body(3.0, 1_000_000), body(3.0, 1_000_000), body(4.0, None), body(5.0, 9, started=2.0)]
    assert [rates.rows([one])[0].cores for one in steps] == [None, 0.5, 0.5, None, None]


def test_event_line() -> None:
    event = {
        "time": "2026-01-02T03:04:05.678901Z",
        "topic": "/tasks/start",
        "pod_name": "web",
        "pod_namespace": "shop",
        "count": 4,
    }
    assert describe_event(event).split() == ["03:04:05.678", "/tasks/start", "shop/web", "Pods", "4"]
