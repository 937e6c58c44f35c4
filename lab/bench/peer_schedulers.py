"""Other schedulers that look at load, on the same nodes and Pods as the extender: what each needs, and how it starts.

Both are kube-schedulers with plugins of their own, built from the modules that lab/support/kube_versions.toml pins.
Each gets the usage of all nodes as in its own cluster: Koordinator by NodeMetric objects, Trimaran by HTTP from a load
watcher, which a thread here stands in for.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from lab.support.control_plane import Plane
from lab.support.kube_admin import AdminError
from lab.support.kube_versions import part
from lab.support.module_files import module_folder
from lab.support.waiting import wait_for

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
USED_PERCENT = 20.0
"""Of every node's CPU and memory."""
Config = dict[str, Any]


def _scored_by(plugin: str, points: tuple[str, ...], arguments: Config) -> Config:
    enabled = {point: {"enabled": [{"name": plugin}]} for point in points}
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{plugin}Args", **arguments}
    profile = {"schedulerName": "default-scheduler", "plugins": enabled}
    return {"profiles": [{**profile, "pluginConfig": [{"name": plugin, "args": args}]}]}


@contextmanager
def koordinator(plane: Plane, nodes: list[str]) -> Iterator[Config]:
    """LoadAwareScheduling, with its defaults."""
    known = {one["metadata"]["name"] for one in plane.admin.get(CRDS)["items"]}
    for file in sorted((module_folder("koordinator") / "config/crd/bases").glob("*.yaml")):
        document = yaml.load(file.read_text(), yaml.CSafeLoader)
        if document["metadata"]["name"] not in known:
            plane.admin.post(CRDS, document)
    wait_for(lambda: _is_served(plane, METRICS), "NodeMetrics are served")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda node: _node_metric(plane, node), nodes))
    yield _scored_by("LoadAwareScheduling", ("filter", "score", "reserve"), {})


def _is_served(plane: Plane, path: str) -> bool:
    try:
        return bool(plane.admin.get(path))
    except AdminError as error:
        if error.status == 404:
            return False
        raise


def _node_metric(plane: Plane, node: str) -> None:
    """As its agent on the node would renew it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    usage = {"cpu": f"{40 * USED_PERCENT:.0f}m", "memory": f"{0.16 * USED_PERCENT:.1f}Gi"}
    status = {"updateTime": now, "nodeMetric": {"nodeUsage": {"resources": usage}}}
    body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}, "spec": {}}
    if not _is_served(plane, f"{METRICS}/{node}"):
        plane.admin.post(METRICS, body)
    plane.admin.merge(f"{METRICS}/{node}/status", {"status": status})


def _trimaran(plugin: str) -> Callable[[Plane, list[str]], Any]:
    @contextmanager
    def running(plane: Plane, nodes: list[str]) -> Iterator[Config]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _watcher_of(nodes))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}"
            yield _scored_by(plugin, ("score",), {"watcherAddress": address})
        finally:
            server.shutdown()
            server.server_close()

    return running


def _watcher_of(nodes: list[str]) -> type[BaseHTTPRequestHandler]:
    """Answers as a load watcher does (github.com/paypal/load-watcher, WatcherMetrics)."""
    pairs = [(kind, operator) for kind in ("CPU", "Memory") for operator in ("AVG", "STD", "Latest")]
    metrics = [
        {"name": f"{kind}.{operator}", "type": kind, "operator": operator, "value": USED_PERCENT}
        for kind, operator in pairs
    ]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = int(time.time())
            window = {"duration": "15m", "start": now - 900, "end": now}
            data = {"NodeMetricsMap": {node: {"metrics": metrics} for node in nodes}}
            body = json.dumps({"timestamp": now, "window": window, "source": "bench", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return Handler


PEERS: dict[str, tuple[str, str, Callable[[Plane, list[str]], Any]]] = {
    "Koordinator: LoadAwareScheduling": ("koordinator", "koord-scheduler", koordinator),
    "Trimaran: TargetLoadPacking": ("scheduler-plugins", "scheduler-plugins", _trimaran("TargetLoadPacking")),
    "Trimaran: LoadVariationRiskBalancing": (
        "scheduler-plugins",
        "scheduler-plugins",
        _trimaran("LoadVariationRiskBalancing"),
    ),
}
"""Title: the part, its program, and what gives it the nodes' load."""


def built_peers() -> dict[str, tuple[Path, Callable[[Plane, list[str]], Any]]]:
    """Those whose program is in the cache; `python -m lab.support.kube_build PART` builds one."""
    return {
        f"{title} {part(name).version}": (part(name).bin / program, load)
        for title, (name, program, load) in PEERS.items()
        if not part(name).missing()
    }
