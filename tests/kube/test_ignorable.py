"""`ignorable: true`: since 1.30 kube-scheduler ignores also a refused binding, and binds by itself.

With the admission webhook it is exact all the same, whatever Pods ask for. Without, nodes get more than they offer, and
the extender says so.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.lib.net.times import rfc3339
from lab.support.control_plane import Plane
from lab.support.extender_process import ExtenderProcess
from lab.support.waiting import wait_for
from lab.support.webhook import Webhook
from tests.kube.fleet import Fleet
from tests.kube.judge import Recorder, Verdict
from tests.kube.test_burst import CHANGING, all_finish, burst, extended
from tests.kube.test_prompt import check, counted, raise_step_by_step

PODS = 120


def ignorable(config: dict[str, Any]) -> dict[str, Any]:
    return {"extenders": [{**one, "ignorable": True} for one in config["extenders"]]}


def by_tls(plane: Plane, webhook: Webhook) -> dict[str, Any]:
    """kube-scheduler talks to the extender that is also the webhook."""
    certificate, key = plane.client_certificate("scheduler", "scheduler")
    files = {"certFile": str(certificate), "keyFile": str(key), "caFile": str(plane.ca)}
    url = webhook.extender.url.replace("http:", "https:")
    config = extended(webhook.extender)
    return {"extenders": [{**config["extenders"][0], "urlPrefix": url, "enableHTTPS": True, "tlsConfig": files}]}


@pytest.fixture
def webhook(cluster: Plane, tmp_path: Path) -> Iterator[Webhook]:
    webhook = Webhook(cluster, tmp_path)
    yield webhook
    webhook.stop()


async def run_burst(plane: Plane, places: int) -> Verdict:
    async with Recorder(plane) as recorder, Fleet(plane, 8.4, **CHANGING) as fleet:
        await burst(plane, PODS, places)
        await all_finish(fleet, PODS)
    verdict = recorder.judge("resource" if places else "places")
    print(f"{verdict.bindings} bindings, {len(verdict.over)} beyond the number, most per node {verdict.most.values()}")
    assert verdict.bindings == PODS
    return verdict


def test_without_the_webhook_the_extender_says_that_it_is_overruled(
    cluster: Plane, start_extender: Callable[..., ExtenderProcess]
) -> None:
    """The Node says 5 and its Lease 0, as while a number falls: filter accepts the node, bind refuses it."""
    extender = start_extender()
    wait_for(lambda: counted(extender, "leads") == 1, "the extender leads")
    cluster.start_scheduler(ignorable(extended(extender)))
    cluster.admin.add_node("falls")
    offer = json.dumps({"places": 0, "resource": 0, "time": rfc3339(), "ttl_s": 150})
    meta = {"name": "falls", "namespace": "carico", "annotations": {"carico.dev/offer": offer}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}
    cluster.admin.post("/apis/coordination.k8s.io/v1/namespaces/carico/leases", lease)
    status = json.dumps({"time": rfc3339(), "ttl_s": 150, "places": 5})
    notes = {"carico.dev/slots": "5", "carico.dev/status": status}
    cluster.admin.merge("/api/v1/nodes/falls", {"metadata": {"annotations": notes}})
    for name in ("one", "two"):
        cluster.admin.add_pod(name, 0)
    wait_for(lambda: cluster.admin.bound() == {"falls": 2}, "kube-scheduler has bound them by itself")
    wait_for(lambda: counted(extender, "overruled_binds_total") == 2, "the extender has noticed")
    with urllib.request.urlopen(f"{extender.url}/healthz", timeout=5) as answer:
        warnings = json.load(answer)["warnings"]
    assert "Set `ignorable: false`, or apply deploy/admission/bindings.yaml" in warnings[0]
    assert extender.log.read_text().count("`ignorable: true`") == 1  # once, however often


@pytest.mark.parametrize("places", [0, 1], ids=["no resource", "resource"])
async def test_with_the_webhook_a_refused_binding_stays_refused(cluster: Plane, webhook: Webhook, places: int) -> None:
    cluster.start_scheduler(ignorable(by_tls(cluster, webhook)))
    verdict = await run_burst(cluster, places)
    assert [str(one) for one in verdict.over] == []
    assert webhook.counted("overruled_binds_total") == 0
    if not places:  # refused by bind, and again by the webhook
        assert min(webhook.counted(name) for name in ("refused_binds_total", "refused_admissions_total")) > 0


@pytest.mark.parametrize("places", [0, 1], ids=["no resource", "resource"])
async def test_with_the_webhook_a_rise_is_used_at_once(cluster: Plane, webhook: Webhook, places: int) -> None:
    cluster.start_scheduler(ignorable(by_tls(cluster, webhook)))
    rises = await raise_step_by_step(cluster, places)
    # Without the resource two Pods may pass filter for one place.
    check("webhook and extender", rises, webhook.counted("refused_admissions_total") if places else 0.0)
