"""The report of lab/packing/cluster.py: every policy is run, and the words follow the numbers."""

from carico_agent.extender import policies
from lab.packing.cluster import JOBS, SIZES, PackingRow, findings, row, schedulers
from lab.sim.engine import Setup, run
from lab.sim.workload import LIGHT, PodBatch


def test_every_policy_is_run() -> None:
    assert set(schedulers()) == {"kube-scheduler", *policies.find()}
    assert sum(job.pods for job in JOBS) > 500 and len(set(SIZES)) == 4


def test_packing_uses_fewer_nodes_than_spreading() -> None:
    """Eight light Pods on nodes of two sizes: one node is enough for them, and a Pod's share differs by node."""
    setup = Setup(nodes=4, sizes=(0.5, 0.5, 1.0, 2.0), warm_s=2.0)
    jobs = [PodBatch(LIGHT.asking(100, 100), 8, over_s=20.0)]
    found = {name: run(schedulers()[name](), jobs, 7, setup) for name in ("kube-scheduler", "most-allocated")}
    used = {name: int((result.assigned > 0).any(axis=0).sum()) for name, result in found.items()}
    assert all(result.finished for result in found.values())
    assert used["most-allocated"] < used["kube-scheduler"]


def test_words_follow_numbers() -> None:
    rows = [
        PackingRow("kube-scheduler", 20, 24, 100, 150, 10, 30),
        PackingRow("a", 9, 9, 60, 150, 20, 30),
        PackingRow("b", 9, 9, 90, 150, 12, 3),
    ]
    output = "\n".join(findings({one.name: one for one in rows}))
    assert "fewest cores in use: a, 0.60 ×" in output and "among carico's policies: b, 1.20 ×" in output


def test_a_row_counts_the_cores_of_used_nodes() -> None:
    result = run(schedulers()["first-fit"](), [PodBatch(LIGHT, 1)], 1, Setup(nodes=len(SIZES), sizes=SIZES, warm_s=2.0))
    found = row("first-fit", [result])
    assert found.most == 1 and 0 < found.cores <= 16 and found.jct_s > 0
