"""Our own Pod's label says whether we lead."""

import asyncio
from typing import Any

import pytest
import yaml

from carico_agent.extender.leader_label import LABEL, RETRY_S, label_of
from carico_agent.lib.kube.client import Object
from carico_agent.lib.kube.errors import Refused
from tests.conftest import TREE
from tests.virtual_time import run

POD = {"POD_NAMESPACE": "carico", "POD_NAME": "carico-extender-1"}


class Server:
    def __init__(self) -> None:
        self.labels: list[tuple[str, Any]] = []
        self.refuses = False

    async def patch(self, path: str, body: Object) -> Object:
        if self.refuses:
            raise Refused(403, "missing right: patch pods")
        self.labels.append((path, body["metadata"]["labels"][LABEL]))
        return {}


def test_the_label_follows_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        server, leads = Server(), False
        client: Any = server
        label = label_of(client, lambda: leads, POD)
        assert label is not None
        task = asyncio.create_task(label.run())
        await asyncio.sleep(2.0)
        leads = True
        server.refuses = True
        await asyncio.sleep(2.0)
        server.refuses = False
        await asyncio.sleep(RETRY_S)
        leads = False
        await asyncio.sleep(2.0)
        task.cancel()
        path = "/api/v1/namespaces/carico/pods/carico-extender-1"
        assert server.labels == [(path, None), (path, "yes"), (path, None)]

    run(scene(), monkeypatch)


def test_outside_of_a_pod_there_is_no_label() -> None:
    client: Any = Server()
    assert label_of(client, lambda: True, {"POD_NAME": "x"}) is None


def test_the_manifest_names_the_pod_and_selects_by_the_label() -> None:
    documents = list(yaml.safe_load_all((TREE / "deploy/base/30-extender.yaml").read_text()))
    (service,) = (document for document in documents if document["kind"] == "Service")
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    assert service["spec"]["selector"] == {"app": "carico-extender", LABEL: "yes"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {variable["name"] for variable in container["env"]} == set(POD)
