"""Days and lifetimes of workloads between nodes: small, robust, refused when they make no sense."""

import numpy as np
import pytest

from carico_agent.core import CapacityModel, ModelConfig, WorkloadCost
from carico_agent.core.profile import BINS, Profile, moved
from carico_agent.core.subspace import Subspace
from carico_agent.federation import profiles, wire, wire_workloads
from carico_agent.federation.cluster_workloads import ClusterWorkloads, merge_nodes
from carico_agent.federation.contribution import Contribution, Rejected
from carico_agent.federation.proto import federation_pb2 as pb
from carico_agent.federation.workloads import ReportedWorkloads

RESOURCES = ("cpu", "memory")
SIZES = (8.0, 16e9)


def day(peak: float = 0.4, base: float = 0.1) -> np.ndarray:
    found = np.full((2, BINS), base)
    found[:, 20:24] = peak
    return found


def contribution(profile: Profile | None, name: str = "shop/web") -> Contribution:
    workload = WorkloadCost(name, (0.1, 0.02), (0.01, 0.002), 5, 2.0, profile)
    return Contribution(RESOURCES, Subspace.empty(2), 10, sizes=SIZES, workloads=[workload])


def reported(profile: Profile | None) -> ReportedWorkloads:
    found = wire.read_contribution(wire.write_contribution("a", contribution(profile), 1))[2]
    assert found is not None
    return found


def merged(reports: list[ReportedWorkloads]) -> ClusterWorkloads:
    *_, last = merge_nodes(reports)
    assert last is not None
    return last


def test_a_profile_survives_the_way_to_the_aggregator_and_back() -> None:
    cluster = merged([reported(Profile(day(), 60.0, 300.0, 7))])
    table = pb.WorkloadTable.FromString(wire_workloads.write_table(cluster, 1, 10, 10_000).SerializeToString())
    (workload,) = wire_workloads.to_node(wire_workloads.read_table(table), ("memory", "cpu"), (16e9, 4.0))
    assert workload.profile is not None
    np.testing.assert_allclose(workload.profile.day[0], day()[1], atol=0.001)
    np.testing.assert_allclose(workload.profile.day[1], 2 * day()[0], atol=0.002)  # a node of half the size
    assert (workload.profile.median_s, workload.profile.p90_s, workload.profile.ended) == (60.0, 300.0, 7)


def test_a_workload_takes_about_200_bytes() -> None:
    with_day, without = (
        len(wire_workloads.write_report(contribution(p))) for p in (Profile(day(), 60.0, 300.0, 7), None)
    )
    assert with_day - without < 130
    assert with_day < 230


def test_unknown_half_hours_stay_unknown() -> None:
    given = day()
    given[0, :10] = np.nan
    back = profiles.decoded(profiles.encoded(given), 2)
    np.testing.assert_array_equal(np.isnan(back), np.isnan(given))


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("lie", [0.0, 1e6, 1.5])
def test_one_liar_among_100_moves_a_profile_by_at_max_5_percent(spread: float, lie: float) -> None:
    rng = np.random.default_rng(3)
    true = [Profile(day() * rng.normal(1, spread, (2, BINS)).clip(0.1), 60.0, 300.0, 7) for _ in range(99)]
    honest, lied = (
        merged([reported(one) for one in [*true, last]]).rows["shop/web"].profile
        for last in (Profile(day(), 60.0, 300.0, 7), Profile(day() * lie, 4e8 * bool(lie), 4e8 * bool(lie), 10**6))
    )
    assert honest is not None
    assert lied is not None
    assert np.abs(lied.day / honest.day - 1).max() <= 0.05
    assert abs(lied.p90_s / honest.p90_s - 1) <= 0.05


def test_nodes_on_which_none_has_ended_say_that_pods_stay() -> None:
    """One node that saw a Pod end does not make a Deployment a Job."""
    stays, ended = Profile(day()), Profile(day(), 10.0, 10.0, 1)
    found = merged([reported(stays), reported(stays), reported(ended)]).rows["shop/web"].profile
    assert found is not None
    assert found.lifetime.horizon_s == 86400.0


@pytest.mark.parametrize(
    "damage",
    [
        {"profile": b"short"},
        {"profile": np.float32(np.nan).tobytes() + bytes(48) + bytes(52)},
        {"profile": np.float32(-1).tobytes() + bytes(48) + bytes(52)},
        {"profile": bytes(104), "p90_life_s": -1.0},
        {"profile": bytes(104), "median_life_s": float("inf")},
    ],
)
def test_what_makes_no_sense_is_refused(damage: dict[str, object]) -> None:
    message = pb.Contribution.FromString(wire.write_contribution("a", contribution(None), 1))
    workload = {"workload": "x", "cost": [1.0, 1.0], "spread": [0.0, 0.0], "pods_seen": 1, **damage}
    message.workloads = pb.WorkloadReport(workloads=[pb.WorkloadCost(**workload)]).SerializeToString()
    with pytest.raises(Rejected, match="profile"):
        wire.read_contribution(message.SerializeToString())


def test_an_older_wire_is_refused_with_what_to_do() -> None:
    message = pb.Contribution.FromString(wire.write_contribution("a", contribution(None), 1))
    message.wire = 0
    with pytest.raises(Rejected, match="wire 1, this aggregator speaks 2: upgrade carico on that node"):
        wire.read_contribution(message.SerializeToString())


def test_small_changes_are_not_sent_again() -> None:
    old = Profile(day(), 60.0, 300.0, 7)
    assert not moved(old, Profile(day() * 1.1, 60.0, 310.0, 8))
    assert moved(old, Profile(day(peak=0.8), 60.0, 300.0, 7))
    assert moved(old, Profile(day(), 60.0, 900.0, 7))
    assert moved(None, old)


def test_a_node_that_never_ran_a_workload_uses_the_clusters_profile() -> None:
    cluster = merged([reported(Profile(day(), 60.0, 300.0, 7)) for _ in range(3)])
    model = CapacityModel(RESOURCES, ModelConfig(cores=4))
    assert not model.outlook.knows("shop/web")
    model.learn_workloads(wire_workloads.to_node(cluster, RESOURCES, SIZES))
    assert model.outlook.knows("shop/web")
    assert model.horizon_s("shop/web") == 300.0
    model.learn_workloads([])
    assert not model.outlook.knows("shop/web")
