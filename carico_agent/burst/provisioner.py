"""A target's nodes are made and removed by a command of the operator's choice, over JSON.

The command gets one JSON object on standard input and prints one on standard output:

    {"request_id": "cloud-7", "verb": "scale", "target": "cloud", "nodes": 2, "busy": ["node-a"]}
    {"state": "ready", "nodes": 2, "message": ""}

Verbs: `scale` (make the cluster and its nodes as many as `nodes`), `delete` (everything), `status`. States: `ready`
(with 0 nodes: nothing in use), `working` (not there yet: ask `status` again), `absent` (nothing exists any more and
nothing can run there; only this proves that a cluster is gone), `failed`. The same request id twice must have the
effect of once. Nodes in `busy` run Jobs: they must stay.

A request is written into a ConfigMap before the command runs, so that neither a crash nor a hang can order twice:
until that request is answered, whoever leads repeats it with the same id. A command that hangs is killed at its
deadline, and asked `status` from then on.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
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

    def request_id(self, target: str) -> str:
        return f"{target}-{self.number}"


@dataclass(frozen=True)
class Report:
    """What the command says of its target."""

    state: str
    nodes: int = 0
    message: str = ""


def parse_report(output: bytes) -> Report:
    """
    >>> parse_report(b'{"state": "ready", "nodes": 2}')
    Report(state='ready', nodes=2, message='')
    """
    try:
        value: Any = json.loads(output)
        report = Report(str(value["state"]), int(value.get("nodes") or 0), str(value.get("message") or "")[:500])
    except MALFORMED as error:
        raise ProvisionerError(f"the provisioner answered no report: {output[:200]!r}") from error
    if report.state not in STATES or report.nodes < 0:
        raise ProvisionerError(f"the provisioner answered state {report.state!r}, nodes {report.nodes}")
    return report


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


class Provisioner:
    """One target's command and its orders, kept in a ConfigMap of the home cluster."""

    def __init__(
        self, client: KubeClient, namespace: str, target: str, command: tuple[str, ...], deadline_s: float
    ) -> None:
        self._client, self._target = client, target
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = f"carico-burst-{target}"
        self._command, self._deadline_s = command, deadline_s
        self._version = ""
        self.loaded = False
        self.order = Order()
        self.report = Report("unknown")
        self.trouble = ""

    async def load(self) -> None:
        """What was ordered last, by whoever led then."""
        try:
            found = await self._client.get(f"{self._path}/{self._name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            self._version, self.order, self.loaded = "", Order(), True
            return
        self._version = str(found["metadata"]["resourceVersion"])
        try:
            values = json.loads((found.get("data") or {}).get("order") or "{}")
            self.order = Order(**values)
        except (ValueError, TypeError) as error:
            raise ProvisionerError(f"ConfigMap {self._name} was changed by another client") from error
        self.loaded = True

    async def ask(self, verb: str, nodes: int = 0) -> None:
        """Order something new; not before the last order was answered. The report comes with `poll`."""
        if self.order.open or self._stands(verb, nodes):
            return
        await self._save(Order(self.order.number + 1, verb, nodes, True))

    def _stands(self, verb: str, nodes: int) -> bool:
        """Whether this is what was ordered last, and it is so."""
        same = self.order.verb == verb and self.order.nodes == nodes
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
            "nodes": self.order.nodes,
            "busy": sorted(busy),
        }
        try:
            self.report = await run_command(self._command, request, self._deadline_s)
        except ProvisionerError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        if self.order.open and self._answered():
            await self._save(replace(self.order, open=False))
        return self.report

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
            "data": {"order": json.dumps(asdict(order))},
        }
        self.loaded = False  # until it is certain what is written: a conflict, or a lost answer, is read again
        if self._version:
            body["metadata"]["resourceVersion"] = self._version
            saved = await self._client.request("PUT", f"{self._path}/{self._name}", body)
        else:
            saved = await self._client.post(self._path, body)
        self.loaded = True
        self._version, self.order = str(saved["metadata"]["resourceVersion"]), order
