"""The arm of `lab.progress.real` in which a real kube-scheduler places the jobs."""

from lab.progress.real_scheduler import KubeScheduler
from lab.support.control_plane import Plane


def test_kube_scheduler_spreads_jobs_and_forgets_those_that_ended(cluster: Plane) -> None:
    ended: set[str] = set()
    scheduler = KubeScheduler(cluster, 2, ended.__contains__)
    first = [scheduler.place([]) for _ in range(4)]
    assert sorted(first) == [0, 0, 1, 1]  # equal nodes take turns
    ended |= {f"job-{n}" for n, worker in enumerate(first) if worker == 0}
    assert [scheduler.place([]) for _ in range(2)] == [0, 0]  # worker 1 still has two
    assert len(cluster.admin.pods()) == 4
