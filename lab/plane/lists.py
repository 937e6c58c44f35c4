"""Does a level of its own help? Three clients that list 30,000 ConfigMaps: `python -m lab.plane.lists [--repeats 5]`.

A real etcd and kube-apiserver on one CPU, clients on another. `plain` lists without a limit, `polls` with a limit that
resourceVersion=0 switches off, `exact` an old version. Beside them 300 nodes renew their Leases, and one client of the
same priority reads single ConfigMaps in a closed loop. `carico plane --audit` must name the three; what it prints with
--limit-lists is applied for each of them. Then both arms are measured, in random order. Results go to
lab/results/plane_lists.json and .md. Needs `make kube`.
"""

import argparse
import asyncio
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.plane.client import Client, nodes
from lab.plane.parts import Connections, LabPlane, every

TREE = Path(__file__).parents[2]
RESULTS, REPORT = TREE / "lab/results/plane_lists.json", TREE / "lab/results/plane_lists.md"
MAPS, NODES = 30_000, 300
SETTLE_S, MEASURED_S = 4.0, 12.0
BAD = ("plain", "polls", "exact")
WORKERS = 4
SPACE = "/api/v1/namespaces/many/configmaps"


class ListsPlane(LabPlane):
    """With the users of this experiment, and an audit log of their LISTs."""

    def _files(self) -> None:
        super()._files()
        with (self.folder / "tokens.csv").open("a") as file:
            for name in (*BAD, "reader"):
                file.write(f'{name}-token,system:serviceaccount:lab:{name},{name},"system:serviceaccounts"\n')
        rules = [{"level": "Metadata", "verbs": ["list"], "omitStages": ["RequestReceived"]}, {"level": "None"}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
        (self.folder / "audit.json").write_text(json.dumps(policy))

    def begin(self) -> None:
        self.start()
        group = "rbac.authorization.k8s.io"
        names = ["system:node:lab", *(f"system:serviceaccount:lab:{name}" for name in (*BAD, "reader"))]
        binding = {
            "metadata": {"name": "lab"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": group},
            "subjects": [{"kind": "User", "name": name, "apiGroup": group} for name in names],
        }
        self.admin.post(f"/apis/{group}/v1/clusterrolebindings", binding)
        ask = Connections(self.port, self.ca).ask
        for name in ("many", "kube-node-lease"):
            if name not in {one["metadata"]["name"] for one in self.admin.get("/api/v1/namespaces")["items"]}:
                ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        every(NODES, lambda n: ask("POST", leases, {"metadata": {"name": f"lab-{n}"}}))
        every(MAPS, lambda n: ask("POST", SPACE, {"metadata": {"name": f"c-{n}"}, "data": {"k": "v" * 200}}))


async def lists(client: Client, seconds: float, query: str) -> dict[str, Any]:
    began_s = time.perf_counter()

    async def worker() -> None:
        while time.perf_counter() - began_s < seconds:
            if (await client.ask("LIST", SPACE + query))[0] == 429:
                await asyncio.sleep(1.0)

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    return client.result(time.perf_counter() - began_s)


async def reads(client: Client, seconds: float) -> dict[str, Any]:
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        await client.ask("GET", f"{SPACE}/c-{random.randrange(MAPS)}")
    return client.result(time.perf_counter() - began_s)


async def client(role: str, server: str, ca: str, seconds: float, query: str) -> None:
    """One client as a process: prints a line of JSON."""
    token = "node-token" if role == "nodes" else f"{role}-token"
    one = Client(server, ca, token)
    one.session.headers["User-Agent"] = f"lab-{role}/1"
    work = {"nodes": lambda: nodes(one, seconds, NODES), "reader": lambda: reads(one, seconds)}
    try:
        print(json.dumps(await work.get(role, lambda: lists(one, seconds, query))()))
    finally:
        await one.session.close()


class Experiment:
    def __init__(self, plane: ListsPlane) -> None:
        self.plane = plane
        version = plane.admin.get(f"{SPACE}?limit=1")["metadata"]["resourceVersion"]
        self.queries = {
            "plain": "",
            "polls": "?resourceVersion=0&limit=500",
            "exact": f"?resourceVersion={version}&resourceVersionMatch=Exact",
        }
        self.config = str(plane.kubeconfig("admin-token"))

    def spawn(self, role: str, seconds: float) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "lab.plane.lists", "--client", role, self.plane.server, str(self.plane.ca)]
        command += [str(seconds), self.queries.get(role, "")]
        nice = "15" if role in BAD else "0"  # on their CPU the three must not keep the other clients from asking
        return subprocess.Popen(
            ["nice", "-n", nice, "taskset", "-c", "1", *command], stdout=subprocess.PIPE, text=True, cwd=TREE
        )

    def measure(self) -> dict[str, Any]:
        bad = [self.spawn(role, SETTLE_S + MEASURED_S) for role in BAD]
        time.sleep(SETTLE_S)
        before_s = self.plane.cpu_s()["kube-apiserver"]
        good = [self.spawn(role, MEASURED_S) for role in ("nodes", "reader")]
        leases, reader = (json.loads(one.communicate()[0]) for one in good)
        spent_s = self.plane.cpu_s()["kube-apiserver"] - before_s
        listed = [json.loads(one.communicate()[0]) for one in bad]
        return {
            "lease_p99_ms": leases["latency_ms"].get("PATCH", {}).get("p99"),
            "leases": leases["ended"],
            "reads_per_s": reader["ok_per_s"],
            "lists_per_s": sum(one["ok_per_s"] for one in listed),
            "rejected_lists": sum(one["ended"].get("rejected", 0) for one in listed),
            "api_cores": spent_s / MEASURED_S,
        }

    def carico(self, *more: str) -> "subprocess.CompletedProcess[str]":
        log = str(self.plane.folder / "audit.log")
        command = [sys.executable, "-m", "carico_agent", "plane", "--kubeconfig", self.config, "--audit", log, *more]
        return subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True)

    def named(self) -> list[str]:
        rows = json.loads(self.carico("--json", "--interval", "1").stdout)["list_clients"]
        return [row["user"].rpartition(":")[2] for row in rows if row["resource"] == "configmaps"]

    def kubectl(self, verb: str, manifests: str) -> None:
        command = [str(self.plane.bin / "kubectl"), "--kubeconfig", self.config, verb, "-f", "-"]
        subprocess.run(command, input=manifests, text=True, check=True, capture_output=True)


def run(repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="carico-lab-") as name:
        plane = ListsPlane(Path(name), 0)
        try:
            plane.begin()
            print(f"{MAPS} ConfigMaps, {NODES} Leases", flush=True)
            one = Experiment(plane)
            one.measure()  # for the log, and to warm up
            named = one.named()
            print(f"named: {named}", flush=True)
            printed = []
            for _ in range(len(BAD)):
                printed.append(one.carico("--limit-lists").stdout)
                one.kubectl("apply", printed[-1])
            rows = list(measured(one, printed, repeats))
            return {"named": named, "rows": rows, "version": ".".join(map(str, plane.version))}
        finally:
            plane.stop()


def measured(one: Experiment, printed: list[str], repeats: int) -> Any:
    choose, limited = random.Random(19), True
    for repeat in range(repeats):
        for arm in choose.sample(["as it is", "limited"], 2):
            if (arm == "limited") != limited:
                limited = not limited
                one.kubectl("apply" if limited else "delete", together(printed))
                time.sleep(2.0)
            row = {"arm": arm, "repeat": repeat, **one.measure()}
            print(row, flush=True)
            yield row


def together(printed: list[str]) -> str:
    """All that was printed as one list; the level is in each of them."""
    objects = {(one["kind"], one["metadata"]["name"]): one for text in printed for one in json.loads(text)["items"]}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())})


def report(found: dict[str, Any]) -> str:
    """Medians and ranges of each arm, and the factor per repeat."""
    rows = found["rows"]
    lines = [
        f"# Three clients that list {MAPS:,} ConfigMaps",
        "",
        f"Kubernetes {found['version']}, API server and etcd on one CPU, {platform.machine()}, shared machine. "
        f"`carico plane --audit` named: {', '.join(found['named'])} (all three: "
        f"{'yes' if set(found['named']) == set(BAD) else 'no'}). Median of {len(rows) // 2} repeats (least to most); "
        "factors are per repeat.",
        "",
        "| | as it is | limited | factor |",
        "|---|---|---|---|",
    ]
    for key, name, inverse in (
        ("lease_p99_ms", "p99 of a Lease renewal [ms]", True),
        ("reads_per_s", "reads of another client [1/s]", False),
        ("lists_per_s", "LISTs of the three [1/s]", False),
        ("api_cores", "cores of the API server", False),
    ):
        before, after = ([row[key] for row in rows if row["arm"] == arm] for arm in ("as it is", "limited"))
        factors = [(a / b if inverse else b / a) for a, b in zip(before, after, strict=True) if a and b]
        lines.append(f"| {name} | {_spread(before)} | {_spread(after)} | {_spread(factors)} |")
    return "\n".join([*lines, ""])


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--client", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true", help="only write the report from what was measured")
    given = parser.parse_args()
    if given.client:
        role, server, ca, seconds, query = given.client
        asyncio.run(client(role, server, ca, float(seconds), query))
        return
    if not given.report:
        RESULTS.write_text(json.dumps(run(given.repeats), indent=1) + "\n")
    REPORT.write_text(report(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
