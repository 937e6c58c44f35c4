"""Those who ask, each a process: `python -m lab.plane.client ROLE SERVER CA SECONDS …` prints one line of JSON.

greedy RATE QUERY WORKERS: a client of low priority, PUT:DELETE:PATCH:POST:LIST:GET = 1:1:2:4:6:8; open loop at RATE per
second, or with rate 0 a closed loop of WORKERS; QUERY is added to every LIST. nodes COUNT: node Lease writes, each node
every 10 s. pods RATE: Pods made for kube-scheduler to bind, and how long that takes.
"""

import asyncio
import json
import random
import ssl
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import aiohttp

from lab.plane.parts import NAMESPACES, pod_object

MIX = {"PUT": 1, "DELETE": 1, "PATCH": 2, "POST": 4, "LIST": 6, "GET": 8}
IN_FLIGHT = 1500
TIMEOUT_S = 60.0
KEPT = 20_000


class Client:
    """Requests with their latency by verb, and how they ended."""

    def __init__(self, server: str, ca: str, token: str) -> None:
        context = ssl.create_default_context(cafile=ca)
        self._server = server
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=IN_FLIGHT),
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        )
        self.latency_s: dict[str, list[float]] = defaultdict(list)
        self.ended: Counter[str] = Counter()

    async def ask(self, verb: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, bytes]:
        method = "GET" if verb == "LIST" else verb
        began_s = time.perf_counter()
        try:
            data = None if body is None else json.dumps(body)
            async with self.session.request(
                method, self._server + path, data=data, headers={"Content-Type": kind}
            ) as got:
                content = await got.read()
                status = got.status
        except (aiohttp.ClientError, TimeoutError):
            self.ended["failed"] += 1
            return 0, b""
        self.ended["rejected" if status == 429 else "ok" if status < 400 or status in (404, 409) else str(status)] += 1
        kept = self.latency_s[verb]
        if status < 400 and len(kept) < KEPT:
            kept.append(time.perf_counter() - began_s)
        return status, content

    def result(self, seconds: float) -> dict[str, Any]:
        latency = {verb: quantiles(values) for verb, values in self.latency_s.items() if values}
        everything = [value for values in self.latency_s.values() for value in values]
        return {
            "ended": dict(self.ended),
            "ok_per_s": self.ended["ok"] / seconds,
            "latency_ms": latency | ({"all": quantiles(everything)} if everything else {}),
        }


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)

    def at(q: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(q * len(ordered)))], 2)

    return {"n": len(ordered), "mean": round(1000 * sum(ordered) / len(ordered), 2), "p50": at(0.5), "p99": at(0.99)}


class Greedy:
    """The mix of verbs over ConfigMaps and Pods."""

    def __init__(self, client: Client, listing: str) -> None:
        self._client, self._listing = client, listing
        self._names: list[tuple[str, str]] = []
        self._made = 0
        self._choose = random.Random(19)
        self._verbs = [verb for verb, weight in MIX.items() for _ in range(weight)]

    async def one(self) -> None:
        verb = self._choose.choice(self._verbs)
        space = f"lab-{self._choose.randrange(NAMESPACES)}"
        maps = f"/api/v1/namespaces/{space}/configmaps"
        if verb == "LIST":
            await self._client.ask(verb, f"/api/v1/namespaces/{space}/pods{self._listing}")
        elif verb == "GET":
            n = self._choose.randrange(300) * NAMESPACES + int(space[4:])
            await self._client.ask(verb, f"/api/v1/namespaces/{space}/pods/p-{n}")
        elif verb == "POST" or not self._names:
            self._made += 1
            name = f"m-{self._made}-{self._choose.randrange(1 << 30)}"
            status, _ = await self._client.ask("POST", maps, _map(name))
            if status == 201:
                self._names.append((space, name))
        else:
            await self._change(verb)

    async def _change(self, verb: str) -> None:
        at = self._choose.randrange(len(self._names))
        space, name = self._names[at]
        path = f"/api/v1/namespaces/{space}/configmaps/{name}"
        if verb == "DELETE":
            self._names[at] = self._names[-1]
            self._names.pop()
            await self._client.ask(verb, path)
        elif verb == "PUT":
            await self._client.ask(verb, path, _map(name))
        else:
            await self._client.ask(verb, path, {"data": {"k": str(self._made)}}, "application/merge-patch+json")


def _map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v" * 200}}


async def greedy(client: Client, seconds: float, rate: float, listing: str, workers: int) -> dict[str, Any]:
    source, tasks = Greedy(client, listing), set()
    began_s, sent, held = time.perf_counter(), 0, 0
    if not rate:

        async def worker() -> None:
            while time.perf_counter() - began_s < seconds:
                await source.one()

        await asyncio.gather(*(worker() for _ in range(workers)))
        return client.result(time.perf_counter() - began_s)
    while (passed_s := time.perf_counter() - began_s) < seconds:
        due = int(passed_s * rate)
        for _ in range(due - sent):
            if len(tasks) >= IN_FLIGHT:
                held += 1  # a client has only so many connections
                continue
            task = asyncio.create_task(source.one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        sent = due
        await asyncio.sleep(0.005)
    result = client.result(time.perf_counter() - began_s)
    for task in tasks:
        task.cancel()
    return {**result, "in_flight": len(tasks), "not_sent": held, "sent_per_s": (sent - held) / seconds}


async def nodes(client: Client, seconds: float, count: int) -> dict[str, Any]:
    """A kubelet renews its Lease every 10 s; a renewal that is late does not delay the next node's."""
    began_s = time.perf_counter()

    async def node(n: int) -> None:
        await asyncio.sleep(10.0 * n / count)
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/lab-{n}"
        while time.perf_counter() - began_s < seconds:
            next_s = time.perf_counter() + 10.0
            body = {"spec": {"holderIdentity": f"lab-{n}", "leaseDurationSeconds": 40}}
            await client.ask("PATCH", path, body, "application/merge-patch+json")
            await asyncio.sleep(max(0.0, next_s - time.perf_counter()))

    tasks = [asyncio.create_task(node(n)) for n in range(count)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    return client.result(seconds)


async def pods(client: Client, seconds: float, rate: float) -> dict[str, Any]:
    """From creation to the moment kube-scheduler has bound it, asked for twice a second at most."""
    began_s, started = time.perf_counter(), Counter[str]()
    waits_s: list[float] = []

    async def one(n: int) -> None:
        name = f"late-{n}-{random.randrange(1 << 30)}"
        created_s = time.perf_counter()
        status, _ = await client.ask("POST", "/api/v1/namespaces/default/pods", pod_object(name))
        started["made" if status == 201 else "not made"] += 1
        while status == 201:
            await asyncio.sleep(0.25)
            _, content = await client.ask("GET", f"/api/v1/namespaces/default/pods/{name}")
            if content and json.loads(content).get("spec", {}).get("nodeName"):
                waits_s.append(time.perf_counter() - created_s)
                return

    tasks = []
    while (passed_s := time.perf_counter() - began_s) < seconds - 2:
        tasks.append(asyncio.create_task(one(len(tasks))))
        await asyncio.sleep(max(0.0, len(tasks) / rate - passed_s))
    await asyncio.sleep(2)
    for task in tasks:
        task.cancel()
    return {
        **client.result(seconds),
        "bound": len(waits_s),
        "made": started["made"],
        "start_ms": quantiles(waits_s) if waits_s else None,
    }


async def main(role: str, server: str, ca: str, seconds: str, *rest: str) -> None:
    token = {"greedy": "greedy-token", "nodes": "node-token", "pods": "controller-token"}[role]
    client = Client(server, ca, token)
    try:
        if role == "greedy":
            result = await greedy(client, float(seconds), float(rest[0]), rest[1], int(rest[2]))
        elif role == "nodes":
            result = await nodes(client, float(seconds), int(rest[0]))
        else:
            result = await pods(client, float(seconds), float(rest[0]))
    finally:
        await client.session.close()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
