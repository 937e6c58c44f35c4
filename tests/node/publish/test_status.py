"""Status: JSON there and back, unknown numbers, and other versions' fields."""

import json
from dataclasses import fields
from math import inf, nan

from carico_agent.core import CapacityModel, ModelConfig
from carico_agent.node.publish.status import (
    AgentFacts,
    SamplingStatus,
    Status,
    WorkloadStatus,
    as_json,
    from_json,
    status_of,
)

RESOURCES = ("cpu", "memory")


def made() -> Status:
    model = CapacityModel(RESOURCES, ModelConfig(cores=4))
    for tick in range(50):
        model.observe(tick / 10, [0.3, 0.2], pods=1)
    facts = AgentFacts(
        reserved=2,
        available=3,
        absent={"io": "why"},
        runtime="containerd",
        sampling=SamplingStatus(0.1, None),
        publishers={"socket": "x"},
    )
    return status_of("a", RESOURCES, model.estimate(), {"memory": 0.2, "odd": nan, "odder": inf}, facts)


def test_json_there_and_back() -> None:
    status = made()
    assert from_json(json.loads(json.dumps(as_json(status), allow_nan=False))) == status
    assert status.signals == {"memory": 0.2, "odd": None, "odder": None}
    assert (status.reserved, status.available, status.runtime) == (2, 3, "containerd")


def test_every_field_is_in_the_json_in_its_order() -> None:
    workloads = (WorkloadStatus("shop/web", 2, {"cpu": 0.1}, 3.5, "cpu"),)
    body = as_json(
        Status(host={"cpu": 0.1}, room={"cpu": 0.5}, sizes={"cpu": 8.0}, limits={"cpu": 1.0}, workloads=workloads)
    )
    assert list(body) == [one.name for one in fields(Status)]
    assert body["workloads"] == [
        {
            "workload": "shop/web",
            "pods": 2,
            "cost": {"cpu": 0.1},
            "fits": 3.5,
            "limiting": "cpu",
            "daemon": False,
            "low": None,
            "high": None,
            "spread": {},
            "arrivals": 0.0,
            "trusted": False,
        }
    ]


def test_the_facts_of_the_agent_are_fields_of_the_status() -> None:
    assert {one.name for one in fields(AgentFacts)} <= {one.name for one in fields(Status)}


def test_an_agent_of_another_version() -> None:
    assert from_json({"node": "a", "from_the_future": 1, "federation": None}) == Status(node="a")
