"""deploy/prometheus: agents and extenders have what the PodMonitors name, and an agent answers as they ask."""

import os
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico_agent.settings import parse
from tests.conftest import TREE, AgentProcess

FOLDER = TREE / "deploy/prometheus"
KUBECTL = os.environ.get("KUBEBUILDER_ASSETS", str(Path.home() / ".cache/carico/kube/1.36/bin")) + "/kubectl"


@pytest.fixture(scope="module")
def built() -> dict[tuple[str, str], Any]:
    """Every object by kind and name, as `kubectl apply -k` would send it."""
    kubectl = KUBECTL if Path(KUBECTL).exists() else shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here: `make kube` builds it")
    text = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, text=True, check=True).stdout
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


@pytest.mark.parametrize(("owner", "name"), [("DaemonSet", "carico-agent"), ("Deployment", "carico-extender")])
def test_each_monitor_selects_pods_that_have_its_port(built: dict[tuple[str, str], Any], owner: str, name: str) -> None:
    monitor, template = built["PodMonitor", name]["spec"], built[owner, name]["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    config = parse(tomllib.loads(built["ConfigMap", name]["data"]["config.toml"]))
    listens = config.listen.address if owner == "DaemonSet" else config.extender.listen
    assert listens.endswith(f":{ports[endpoint['port']]}")
    mounted = {volume["secret"]["secretName"] for volume in template["spec"]["volumes"] if "secret" in volume}
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] in mounted
    asks_for_certificate = bool(config.extender.tls_ca) if owner == "Deployment" else bool(config.listen.tls_ca)
    assert ("keySecret" in endpoint["tlsConfig"]) == asks_for_certificate
    (rule,) = built["NetworkPolicy", name]["spec"]["ingress"]
    assert endpoint["port"] in [port["port"] for port in rule["ports"]]


def test_the_overlay_changes_only_how_agents_listen(built: dict[tuple[str, str], Any]) -> None:
    base = next(yaml.safe_load_all((TREE / "deploy/base/20-agent.yaml").read_text()))
    before, now = (tomllib.loads(one["data"]["config.toml"]) for one in (base, built["ConfigMap", "carico-agent"]))
    assert now == before | {"listen": now["listen"]}


def test_an_agent_answers_as_the_monitor_asks(start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    """With the certificate of the README, under the name that the PodMonitor expects, without a client certificate."""
    readme = (FOLDER / "README.md").read_text()
    shell = "\n".join(re.findall(r"^```bash\n(key=.*?)openssl req -new", readme, re.MULTILINE | re.DOTALL))
    subprocess.run(["bash", "-e", "-c", shell], cwd=tmp_path, check=True, capture_output=True)
    monitor = next(yaml.safe_load_all((FOLDER / "pod-monitors.yaml").read_text()))
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    port, config = free_port(), tmp_path / "c.toml"
    config.write_text(
        f'[listen]\naddress = "0.0.0.0:{port}"\n'
        f'tls_cert = "{tmp_path}/metrics.crt"\ntls_key = "{tmp_path}/metrics.key"\n'
    )
    process = start_agent("--config", str(config))
    process.wait(lambda agent: agent.status()["pod_capacity"] is not None)
    host = f"{endpoint['tlsConfig']['serverName']}:{port}"
    curl = ["curl", "-sS", "--fail", "--cacert", str(tmp_path / "metrics.crt"), "--resolve", f"{host}:127.0.0.1"]
    read = subprocess.run([*curl, f"https://{host}{endpoint['path']}"], capture_output=True, text=True)
    assert "\ncarico_pod_capacity " in read.stdout, read.stderr
    reserve = [*curl, "-d", '{"pods": 1, "ttl_s": 1}', f"https://{host}/v1/reservations"]
    assert "403" in subprocess.run(reserve, capture_output=True, text=True).stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
