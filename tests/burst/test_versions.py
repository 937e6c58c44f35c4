"""Results of targets of other versions, and what a Job names at its target, on real control planes (1.36)."""

from typing import Any

import pytest

from carico_agent.burst.events import JobEvents
from carico_agent.burst.mover import Mover
from carico_agent.burst.objects import CopyJob, copy_job, home_job
from carico_agent.burst.results import final_status
from carico_agent.burst.seal import Seal
from carico_agent.burst.steps import Route
from carico_agent.burst.target import Target
from carico_agent.lib.kube.client import KubeClient
from lab.support.burst_planes import BurstPlane, job_body
from lab.support.waiting import wait_for

SEAL = Seal(b"k" * 32)
JOBS = "/apis/batch/v1/namespaces/default/jobs"
Planes = tuple[BurstPlane, BurstPlane]


def copy_of_1_30(end: str, **status: Any) -> CopyJob:
    """As a server before 1.31 has it: one condition, and counters."""
    ended = {
        "type": end,
        "status": "True",
        "lastProbeTime": "2026-01-01T00:01:00Z",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
        **({"reason": "BackoffLimitExceeded"} if end == "Failed" else {}),
    }
    times = {"startTime": "2026-01-01T00:00:00Z"}
    if end == "Complete":
        times["completionTime"] = "2026-01-01T00:01:00Z"
    counted = {"succeeded": 1} if end == "Complete" else {"failed": 1}
    body = {"metadata": {"name": "j"}, "spec": {}, "status": {**times, **counted, "conditions": [ended], **status}}
    return copy_job(body)


@pytest.mark.parametrize("held", [{"suspend": True}, {"parallelism": 0}], ids=["suspended", "no parallelism"])
@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_new_home_takes_the_result_of_an_old_target(planes: Planes, end: str, held: dict[str, Any]) -> None:
    """1.32 and newer refuse a Complete without SuccessCriteriaMet, a Failed without FailureTarget, and another
    startTime for a Job that is held by `parallelism: 0`."""
    home, _ = planes
    home.admin.post(JOBS, job_body("j", **held))
    if "parallelism" in held:
        wait_for(lambda: home.admin.get(f"{JOBS}/j")["status"].get("startTime"), "its controller has seen it")
    else:
        wait_for(lambda: home.admin.get(f"{JOBS}/j")["status"].get("conditions"), "its controller has seen it")
    job = home_job(home.admin.get(f"{JOBS}/j"), SEAL)
    body = final_status(job, copy_of_1_30(end))
    found = home.admin.merge(f"{JOBS}/j/status", body)
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert home_job(found, SEAL).finished == end
    assert conditions == {end: "True", {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[end]: "True"}
    assert found["status"].get("succeeded" if end == "Complete" else "failed") == 1


def target_of(plane: BurstPlane, client: KubeClient) -> Target:
    return Target(Route("home-id", "cloud", seal=SEAL), client, client, known=True)


CLAIMS = "/apis/resource.k8s.io/v1"
DEVICE = {"name": "g", "exactly": {"deviceClassName": "gpu.example.com"}}


async def test_what_a_job_names_is_looked_up_at_the_target(planes: Planes) -> None:
    """With the rights of deploy/burst/target.yaml. A copy whose claim template or class is missing would wait there,
    with an empty reason."""
    home, cloud = planes
    body = job_body("j", suspend=True)
    pod = body["spec"]["template"]["spec"]
    pod |= {"runtimeClassName": "gvisor", "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpus"}]}
    home.admin.post(JOBS, body)
    job = home_job(home.admin.get(f"{JOBS}/j"), SEAL)
    client, other = cloud.client("burst-token"), home.client("burst-token")
    mover = Mover(other, {}, JobEvents(), SEAL)
    made: list[str] = []

    def make(path: str, **content: Any) -> None:
        name = content["metadata"]["name"]
        cloud.admin.post(path, content)
        made.append(f"{path}/{name}")

    try:
        found = [await mover.obstacle(job, target_of(cloud, client))]
        template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {"requests": [DEVICE]}}}}
        make(f"{CLAIMS}/namespaces/default/resourceclaimtemplates", **template)
        found.append(await mover.obstacle(job, target_of(cloud, client)))
        make("/apis/node.k8s.io/v1/runtimeclasses", metadata={"name": "gvisor"}, handler="runsc")
        found.append(await mover.obstacle(job, target_of(cloud, client)))
        make(f"{CLAIMS}/deviceclasses", metadata={"name": "gpu.example.com"}, spec={})
        found.append(await mover.obstacle(job, target_of(cloud, client)))
        assert found == [
            "cloud has no claim template gpus",
            "cloud has no runtime class gvisor",
            "cloud has no device class gpu.example.com",
            "",
        ]
    finally:
        for path in made:
            cloud.admin.delete(path)
        await client.close()
        await other.close()
