"""A target's cluster and nodes are made and removed by a command of the operator's choice, over JSON.

The command gets one JSON object on standard input and prints one on standard output:

    {"request_id": "cloud-7", "verb": "scale", "target": "cloud", "region": "west", "spot": false, "nodes": 3,
     "machines": {"big": {"nodes": 2, "price_per_h": 0.68, "zones": []}, "gpu": {"nodes": 1, ...}},
     "pending": {"jobs": 9, "pods": 9, "requests": {"cpu": 18.0, "memory": 2e10, "nvidia.com/gpu": 1.0}},
     "busy": ["node-a"]}
    {"state": "ready", "nodes": 3, "machines": {"big": 2, "gpu": 1}, "kubeconfig": "apiVersion: v1 ...", "message": ""}

Verbs: `scale` (make the cluster and its nodes as many as `nodes`), `delete` (everything), `status`. States: `ready`
(with 0 nodes: nothing in use), `working` (not there yet: ask `status` again), `absent` (nothing exists any more and
nothing can run there; only this proves that a cluster is gone), `failed`. The same request id twice must have the
effect of once. Nodes in `busy` run Jobs: they must stay. `pending`: the sum of what waits for these nodes.

`kubeconfig` (text, or the object) is the way into a cluster that did not exist before. Burst keeps it in a Secret, so
that every replica and command has it, and uses another one as soon as the command prints another one.

A request is written into a ConfigMap before the command runs, so that neither a crash nor a hang can order twice:
until that request is answered, the leading replica repeats it with the same id. A command that hangs is killed at its
deadline, and asked `status` from then on.
"""

import asyncio
import base64
import binascii
import json
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.placement_lease import MALFORMED

MAX_OUTPUT_BYTES = 64 * 1024
STATES = ("ready", "working", "absent", "failed")


class ProvisionerError(Exception):
    """The command failed, hung, or answered nonsense; what it did is not known."""


@dataclass(frozen=True)
class Order:
    """What was asked of a target last."""

    number: int = 0
    verb: str = "status"
    nodes: int = 0
    open: bool = False
    """Not answered with ready, absent or failed yet."""
    machines: dict[str, int] = field(default_factory=dict)
    """How many nodes of each machine; empty: the target has one machine."""
    pending: Object = field(default_factory=dict)
    """The sum of what waited for these nodes when they were ordered."""

    def request_id(self, target: str) -> str:
        return f"{target}-{self.number}"


@dataclass(frozen=True)
class Report:
    """What the command says of its target."""

    state: str
    nodes: int = 0
    message: str = ""
    machines: dict[str, int] = field(default_factory=dict)
    kubeconfig: str = field(default="", repr=False)


def parse_report(output: bytes) -> Report:
    """
    >>> parse_report(b'{"state": "ready", "nodes": 2}')
    Report(state='ready', nodes=2, message='', machines={})
    """
    try:
        value: Any = json.loads(output)
        machines = {str(name): int(count) for name, count in (value.get("machines") or {}).items()}
        nodes, message = int(value.get("nodes") or 0), str(value.get("message") or "")[:500]
        report = Report(str(value["state"]), nodes, message, machines, _kubeconfig(value.get("kubeconfig")))
    except MALFORMED as error:
        raise ProvisionerError(f"the provisioner answered no report: {output[:200]!r}") from error
    if report.state not in STATES or report.nodes < 0:
        raise ProvisionerError(f"the provisioner answered state {report.state!r}, nodes {report.nodes}")
    return report


def _kubeconfig(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value or "")


async def run_command(command: tuple[str, ...], request: Object, deadline_s: float) -> Report:
    """One run of the command; it and its children are killed at the deadline."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ProvisionerError(f"{command[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(deadline_s):
            output, errors = await process.communicate(json.dumps(request).encode())
    except TimeoutError as error:
        raise ProvisionerError(f"{command[0]} did not answer within {deadline_s:g} s") from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        last_lines = errors.decode(errors="replace").strip().splitlines()[-1:] or ["(nothing)"]
        raise ProvisionerError(f"{command[0]} ended with {process.returncode}: {last_lines[0][:300]}")
    return parse_report(output[:MAX_OUTPUT_BYTES])


@dataclass(frozen=True)
class ClusterOffer:
    """What the command is told about a target beside the order: its region, and its rows of the catalogue."""

    region: str = ""
    spot: bool = False
    machines: Mapping[str, Object] = field(default_factory=dict)
    on_demand: bool = False
    """The cluster's kubeconfig comes from the command."""


def secret_name(target: str) -> str:
    """Of the Secret that holds a target's kubeconfig."""
    return f"carico-burst-{target}-kubeconfig"


async def read_kubeconfig(client: KubeClient, namespace: str, target: str) -> str:
    """The kubeconfig that a provisioner handed back, or nothing; raises KubeError."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret_name(target)}"
    try:
        found = await client.get(path)
    except Refused as refused:
        if refused.says_absent(path):
            return ""
        raise
    try:
        return base64.b64decode(str((found.get("data") or {}).get("kubeconfig") or ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ProvisionerError(f"Secret {secret_name(target)} holds no kubeconfig: {error}") from error


class Provisioner:
    """One target's command and its orders, kept in a ConfigMap of the home cluster."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        target: str,
        command: tuple[str, ...],
        deadline_s: float,
        offer: ClusterOffer | None = None,
    ) -> None:
        self._client, self._target, self._offer = client, target, offer or ClusterOffer()
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = f"carico-burst-{target}"
        self.kubeconfig = ""
        """The way into the cluster, as it was handed back last; empty: there is none."""
        self._command, self._deadline_s = command, deadline_s
        self._version = ""
        self.loaded = False
        self.order = Order()
        self.report = Report("unknown")
        self.last_report = Report("unknown")
        """What another process, or this one, was answered last: for those that do not run the command themselves."""
        self.trouble = ""

    async def load(self) -> None:
        """Read the last order, of this replica or of one that led before."""
        try:
            found = await self._client.get(f"{self._path}/{self._name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            self._version, self.order, self.loaded = "", Order(), True
            return
        if self._offer.on_demand:
            self.kubeconfig = await read_kubeconfig(self._client, self._namespace, self._target)
        self._version = str(found["metadata"]["resourceVersion"])
        try:
            values = json.loads((found.get("data") or {}).get("order") or "{}")
            self.order = Order(**values)
            last = json.loads((found.get("data") or {}).get("report") or "{}")
            if last and self.report.state == "unknown":
                self.last_report = Report(str(last["state"]), int(last["nodes"]), str(last["message"]))
        except MALFORMED as error:
            raise ProvisionerError(f"ConfigMap {self._name} was changed by another client") from error
        self.loaded = True

    async def ask(
        self, verb: str, nodes: int = 0, machines: dict[str, int] | None = None, pending: Object | None = None
    ) -> None:
        """Order something new; not before the last order was answered. The report comes with `poll`."""
        machines = machines or {}
        if self.order.open or self._stands(verb, nodes, machines):
            return
        await self._save(Order(self.order.number + 1, verb, nodes, True, machines, pending or {}))

    def _stands(self, verb: str, nodes: int, machines: dict[str, int]) -> bool:
        """Whether this is what was ordered last, and it is so."""
        same = (self.order.verb, self.order.nodes, self.order.machines) == (verb, nodes, machines)
        if verb == "delete":
            return self._nothing() and (same or self.order.number == 0)
        return same and self.report.state == "ready" and self.report.nodes >= nodes

    async def poll(self, busy: Iterable[str] = ()) -> Report:
        """Run the command for the order that is open, or ask for the status. `busy`: nodes that must not go."""
        verb = self.order.verb if self.order.open and not self.trouble else "status"
        request = {
            "request_id": self.order.request_id(self._target),
            "verb": verb,
            "target": self._target,
            "region": self._offer.region,
            "spot": self._offer.spot,
            "nodes": self.order.nodes,
            "machines": self._machines(),
            "pending": self.order.pending,
            "busy": sorted(busy),
        }
        try:
            self.report = await run_command(self._command, request, self._deadline_s)
        except ProvisionerError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        await self._keep_kubeconfig()
        if self.order.open and self._answered():
            await self._save(replace(self.order, open=False))
        elif self.order.number and _told(self.report) != _told(self.last_report):
            await self._save(self.order)
        return self.report

    def _machines(self) -> Object:
        counts = self.order.machines
        return {name: {**dict(self._offer.machines.get(name, {})), "nodes": nodes} for name, nodes in counts.items()}

    async def _keep_kubeconfig(self) -> None:
        """Before the order is closed: a process that is killed here asks the command again. The way into a cluster that
        is gone is forgotten, for another one may get its address."""
        wanted = "" if self.report.state == "absent" else self.report.kubeconfig or self.kubeconfig
        if not self._offer.on_demand or wanted == self.kubeconfig:
            return
        data = {"kubeconfig": base64.b64encode(wanted.encode()).decode()}
        name = secret_name(self._target)
        try:
            await self._client.patch(f"{self._secrets}/{name}", {"data": data})
        except Refused as refused:
            if refused.status != 404:
                raise
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
            await self._client.post(self._secrets, body)
        self.kubeconfig = wanted

    def _answered(self) -> bool:
        """Whether the report is the end of what was ordered."""
        if self.order.verb == "delete":
            return self._nothing() or self.report.state == "failed"
        return self.report.state in ("ready", "failed")

    def _nothing(self) -> bool:
        """Whether there is nothing to pay: no cluster, or (existing ones) no node of it in use."""
        return self.report.state == "absent" or (self.report.state == "ready" and self.report.nodes == 0)

    async def _save(self, order: Order) -> None:
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name},
            "data": {"order": json.dumps(asdict(order)), "report": json.dumps(_told(self.report))},
        }
        self.loaded = False  # until it is certain what is written: a conflict, or a lost answer, is read again
        if self._version:
            body["metadata"]["resourceVersion"] = self._version
            saved = await self._client.request("PUT", f"{self._path}/{self._name}", body)
        else:
            saved = await self._client.post(self._path, body)
        self.loaded = True
        self._version, self.order = str(saved["metadata"]["resourceVersion"]), order
        self.last_report = self.report


def _told(report: Report) -> Object:
    """A report without its secret."""
    return {"state": report.state, "nodes": report.nodes, "message": report.message}
