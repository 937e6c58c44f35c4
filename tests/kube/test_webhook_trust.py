"""The admission webhook, asked by somebody who is not the API server: over real TLS, beside a real API server."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.lib.kube.names import RESOURCE
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for
from lab.support.webhook import TOKEN, Webhook

NODES = 40


@pytest.fixture
def webhook(cluster: Plane, tmp_path: Path) -> Iterator[Webhook]:
    for number in range(NODES):
        cluster.admin.add_node(f"n{number}")
        quantity = {RESOURCE: "1"}
        status = {"status": {"capacity": quantity, "allocatable": quantity}}
        cluster.admin.merge(f"/api/v1/nodes/n{number}/status", status)
    made = Webhook(cluster, tmp_path)
    wait_for(lambda: made.counted("nodes") == NODES and made.counted("leads") == 1, "the extender leads")
    yield made
    made.stop()


def post(webhook: Webhook, ca: Path, path: str, pod: str, uid: str, node: str) -> Any:
    """The answer's body, or its status where that is an error."""
    binding = {
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": "default", "uid": uid},
        "target": {"name": node},
    }
    asked = {"uid": "1", "namespace": "default", "name": pod, "object": binding}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()
    context = ssl.create_default_context(cafile=str(ca))
    request = urllib.request.Request(f"https://127.0.0.1:{webhook.port}{path}", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.load(answer)["response"]
    except urllib.error.HTTPError as error:
        return error.code


def bind(plane: Plane, pod: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    plane.admin.post(f"/api/v1/namespaces/default/pods/{pod}/binding", body)


def test_one_waiting_pod_does_not_close_the_cluster(cluster: Plane, webhook: Webhook) -> None:
    uid = cluster.admin.add_pod("evil", scheduler="nobody")
    nodes = [f"n{number}" for number in range(NODES)]
    for path in ("/admit", "/admit/", "/admit/0123456789abcdeF"):
        assert post(webhook, cluster.ca, path, "evil", uid, "n0") in (403, 404)
    known = f"/admit/{TOKEN}"  # and if the secret is out
    answers = [post(webhook, cluster.ca, known, "evil", uid, node) for node in nodes]
    assert [answer["allowed"] for answer in answers] == [True] * 3 + [False] * (NODES - 3)
    for number in range(3, NODES):  # the API server asks the same extender about each of these
        cluster.admin.add_pod(f"good-{number}", scheduler="nobody")
        bind(cluster, f"good-{number}", f"n{number}")
    assert webhook.counted("admit_seconds_count") >= NODES + NODES - 3


def test_errors_do_not_name_the_secret(cluster: Plane, webhook: Webhook) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca))
    for path in ("/nothing", "/v1/openapi.json", "/admit/wrong"):
        try:
            with urllib.request.urlopen(
                f"https://127.0.0.1:{webhook.port}{path}", timeout=5, context=context
            ) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read()
        assert said and TOKEN.encode() not in said
