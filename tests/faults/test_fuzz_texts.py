"""JSON that others may have written: annotations of Nodes, Leases and Jobs, answers of commands, old files.

Whatever one of them holds, the watch of all the others goes on, and the agent starts: a value, or the one error meant.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from math import inf, isnan
from pathlib import Path
from typing import Any

import pytest

from carico_agent.burst import cluster as burst_cluster
from carico_agent.burst.objects import LEDGER, ORIGIN, copy_job, home_job
from carico_agent.burst.provisioner import ProvisionerError, parse_report
from carico_agent.burst.seal import Seal
from carico_agent.core import ModelConfig
from carico_agent.extender.published import read_node
from carico_agent.lib.kube import workloads
from carico_agent.lib.kube.names import POD_CAPACITY, SLOTS, STATUS, WORKLOADS
from carico_agent.lib.kube.placement_lease import OFFER, PLACED, lease_record
from carico_agent.lib.kube.workloads import NodeWorkloads, WorkloadOnNode
from carico_agent.lib.supervise.workers import Workers
from carico_agent.node import state
from carico_agent.node.reservations import Reservations
from carico_agent.node.reserve import ReservationApi
from tests.faults.damage import CASES, damaged
from tests.faults.tally import counted

STATUS_TEXT = (
    b'{"v":1,"time":"2024-01-01T00:00:00.000Z","ttl_s":150,"seq":7,"mode":"measured","places":7,"pods":3,'
    b'"work":{"jobs":2,"sum_s":90.5,"max_s":7}}'
)
OFFERS = [b'{"places":8,"resource":null,"time":"2024-01-01T00:00:00Z","ttl_s":150,"token":"t"}']
SEEN = [b'{"token":"t","leader":"x","term":2,"pods":{"u1":[99.5,1,"default/web"],"u2":[1704067200.25,0]}}']


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # the API server takes nothing but UTF-8


def test_what_stands_on_a_node() -> None:
    known = 0
    for data in counted(damaged([STATUS_TEXT], most=2), CASES):
        node = read_node({"metadata": {"name": "a", "annotations": {SLOTS: "8", STATUS: text(data)}}})
        known += not isnan(node.places)
        assert node.name == "a"
    assert 100 < known < CASES


def test_what_a_node_says_about_workloads() -> None:
    given = NodeWorkloads((1.6, 1e9, 0.5, 0.1), workloads={"shop/web": WorkloadOnNode((0.5, 1e8, 0.1, 0.2), pods=2)})
    good, known = workloads.encode(given).encode(), 0
    assert workloads.decode(good.decode()) is not None
    for data in counted(damaged([good], most=2), CASES):
        known += workloads.decode(text(data)) is not None
        read_node({"metadata": {"name": "a", "annotations": {SLOTS: "8", WORKLOADS: text(data)}}})
    assert 100 < known < CASES


def test_what_stands_in_a_placement_lease() -> None:
    offered = placed = 0
    for data in counted(damaged(OFFERS + SEEN, most=2), CASES):
        notes = {OFFER: text(data), PLACED: text(data)}
        spec = {"renewTime": text(data[:30]), "holderIdentity": text(data), "leaseDurationSeconds": 150}
        found = lease_record({"metadata": {"resourceVersion": "7", "annotations": notes}, "spec": spec})
        offered += found.offered.places is not None
        placed += bool(found.acknowledged.placed)
    assert min(offered, placed) > 100


JOB: Any = {"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "spec": {"parallelism": 2}}
SEAL = Seal(b"key of the tests".ljust(32))
AWAY = {"state": "away", "to": "cloud", "epoch": 3, "parallelism": 2, "suspend": True, "cluster": "id", "copy": "c1"}
LEDGERS = [SEAL.sealed(AWAY, ("d", "a", "u")).encode()]
ORIGINS = [b'{"home":"h","namespace":"d","uid":"u","epoch":3,"state":"held"}']


def test_what_stands_on_jobs_of_two_clusters() -> None:
    read = copies = 0
    for data in counted(damaged(LEDGERS + ORIGINS, most=2), CASES):
        job = {**JOB, "metadata": {**JOB["metadata"], "annotations": {LEDGER: text(data), ORIGIN: text(data)}}}
        with suppress(ValueError):
            read += home_job(job, SEAL).ledger.epoch > 0
        copies += bool(copy_job(job).origin)
    assert min(read, copies) > 100


def test_what_burst_reads_of_a_node() -> None:
    good, believed = STATUS_TEXT[:-1] + b',"fits":{"shop/web":2.5}}', 0
    for data in counted(damaged([good], most=2), CASES):
        seen = burst_cluster.read_node(
            {"metadata": {"name": "a", "annotations": {POD_CAPACITY: "5", STATUS: text(data)}}}
        )
        believed += seen.pod_capacity is not None
        assert seen.pod_capacity is None or seen.until_s < inf, "no number is valid for ever"
    assert 100 < believed < CASES


def test_what_a_provisioner_answers() -> None:
    taken = 0
    for data in counted(damaged([b'{"state": "ready", "nodes": 2, "message": "all is well"}'], most=2), CASES):
        with suppress(ProvisionerError):
            taken += parse_report(data).nodes > 0
    assert 100 < taken < CASES


def test_what_an_earlier_life_reserved() -> None:
    held = Reservations(most=9, max_ttl_s=600)
    held.reserve(0.0, 9.0, pods=2, ttl_s=60, holder="h", pod_uid="u", owner="uid 1", workload="shop/db", each=1.5)
    good, taken = json.dumps(held.state()).encode(), 0
    for data in counted(damaged([good], most=2), CASES):
        again = Reservations(most=9, max_ttl_s=600)
        with suppress(TypeError, ValueError):  # those that the agent expects of a damaged file
            again.restore(json.loads(data), 0.0)
            taken += again.total(0.0) > 0
    assert 100 < taken < CASES


def with_each_number(good: bytes, number: str) -> Iterator[str]:
    """That text with one of its numbers after the other replaced."""
    for found in re.finditer(rb"(?<=[:,\[])-?[0-9.]+(?=[,}\]])", good):
        yield text(good[: found.start()]) + number + text(good[found.end() :])


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e999", "-Infinity", "NaN"], ids=lambda one: one[:9])
def test_numbers_beyond_all_bounds(number: str) -> None:
    """Python's JSON takes all of them; as a float or an int they raise, or are no number to count with."""
    tried = 0
    for odd in with_each_number(STATUS_TEXT, number):
        node = {"metadata": {"name": "a", "annotations": {SLOTS: "8", POD_CAPACITY: "5", STATUS: odd}}}
        found = read_node(node)
        assert (isnan(found.places) or found.places < 1e9) and found.work.left_s <= 1e15 and found.work.jobs <= 1e6
        seen = burst_cluster.read_node(node)
        assert seen.pod_capacity is None or seen.until_s < inf
        tried += 1
    for odd in with_each_number(LEDGERS[0], number):
        with suppress(ValueError):
            home_job({**JOB, "metadata": {**JOB["metadata"], "annotations": {LEDGER: odd}}}, SEAL)
        tried += 1
    for odd in with_each_number(ORIGINS[0], number):
        copy_job({**JOB, "metadata": {**JOB["metadata"], "annotations": {ORIGIN: odd}}})
        tried += 1
    for odd in with_each_number(b'{"state":"ready","nodes":2}', number):
        with suppress(ProvisionerError):
            parse_report(odd.encode())
        tried += 1
    assert tried == 8 + 2 + 1 + 1


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000], ids=["lists", "objects"])
def test_nested_without_end(deep: str, tmp_path: Path) -> None:
    notes = {SLOTS: "8", STATUS: deep, WORKLOADS: deep, POD_CAPACITY: "5", LEDGER: deep, ORIGIN: deep}
    assert isnan(read_node({"metadata": {"name": "a", "annotations": notes}}).places)
    assert burst_cluster.read_node({"metadata": {"name": "a", "annotations": notes}}).pod_capacity is None
    assert home_job({**JOB, "metadata": {**JOB["metadata"], "annotations": notes}}, SEAL).ledger.epoch == 0
    with pytest.raises(ProvisionerError):
        parse_report(deep.encode())
    for name in ("reservations.json", "model.json"):
        (tmp_path / name).write_text(deep)
    held = Reservations(most=9, max_ttl_s=600)
    ReservationApi(held, tmp_path / "reservations.json", Workers("the disk", 1), lambda: 9.0, lambda: None)
    assert state.load(tmp_path / "model.json", ("cpu",), ModelConfig(cores=4)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.damaged", "reservations.damaged"]
