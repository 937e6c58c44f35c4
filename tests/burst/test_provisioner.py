"""The provisioner's contract with real commands: idempotent by request id, a deadline, and never a second order."""

import json
import shlex
import stat
import sys
from pathlib import Path

import pytest

from carico_agent.burst.provisioner import Provisioner, ProvisionerError, parse_report, run_command
from carico_agent.lib.kube.errors import Refused
from tests.burst.fake_client import FakeClient
from tests.burst.model import Cluster

FAKE = """# A provisioner for tests: keeps its nodes in a file and every request it ever got in another.
import json, pathlib, sys, time
folder = pathlib.Path({folder!r})
request = json.load(sys.stdin)
with (folder / "requests").open("a") as log:
    log.write(json.dumps(request) + "\\n")
mode = (folder / "mode").read_text()
state = json.loads((folder / "state").read_text())
if request["verb"] in ("scale", "delete") and request["request_id"] not in state["done"]:
    state["done"].append(request["request_id"])
    state["nodes"] = request["nodes"] if request["verb"] == "scale" else 0
    state["orders"] += 1
    (folder / "state").write_text(json.dumps(state))
if mode == "hang":
    time.sleep(600)
if mode == "crash":
    sys.exit("no credit")
if mode == "nonsense":
    print("<html>")
    sys.exit()
print(json.dumps({{"state": "ready" if state["nodes"] else "absent", "nodes": state["nodes"]}}))
"""


class Fake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").write_text(json.dumps({"nodes": 0, "done": [], "orders": 0}))
        self.mode("fine")
        self.path = folder / "provisioner"
        code = folder / "provisioner.py"
        code.write_text(FAKE.format(folder=str(folder)))
        # not Python's path after #!, which ends at a blank
        self.path.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(code))}\n")
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def mode(self, name: str) -> None:
        (self.folder / "mode").write_text(name)

    @property
    def orders(self) -> int:
        return int(json.loads((self.folder / "state").read_text())["orders"])


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def provisioner(fake: Fake, client: FakeClient, deadline_s: float = 20.0) -> Provisioner:
    return Provisioner(client, "carico", "cloud", (str(fake.path),), deadline_s)  # type: ignore[arg-type]


async def test_scale_and_delete(fake: Fake) -> None:
    client = FakeClient(Cluster("home"))
    one = provisioner(fake, client)
    await one.load()
    assert (await one.poll()).state == "absent"
    await one.ask("scale", 2)
    assert (await one.poll()).nodes == 2
    assert not one.order.open
    await one.ask("scale", 2)  # it is so already
    assert one.order.number == 1
    await one.ask("delete")
    assert (await one.poll()).state == "absent"
    assert fake.orders == 2


@pytest.mark.long
async def test_a_command_that_hangs_is_not_ordered_twice(fake: Fake) -> None:
    client = FakeClient(Cluster("home"))
    one = provisioner(fake, client, deadline_s=2.0)
    fake.mode("hang")
    await one.ask("scale", 3)
    with pytest.raises(ProvisionerError, match="did not answer within 2 s"):
        await one.poll()
    await one.ask("scale", 4)  # still open: not asked
    assert one.order.nodes == 3
    fake.mode("fine")
    other = provisioner(fake, client)  # the leader died; another one goes on
    await other.load()
    assert other.order.open
    await other.ask("scale", 4)
    assert (await other.poll()).nodes == 3
    assert fake.orders == 1
    assert not other.order.open


@pytest.mark.parametrize("mode,why", [("crash", "ended with 1: no credit"), ("nonsense", "no report")])
async def test_a_command_that_fails_is_reported_and_tried_again_with_the_same_id(
    fake: Fake, mode: str, why: str
) -> None:
    client = FakeClient(Cluster("home"))
    one = provisioner(fake, client)
    fake.mode(mode)
    await one.ask("scale", 1)
    with pytest.raises(ProvisionerError, match=why):
        await one.poll()
    assert one.trouble
    fake.mode("fine")
    await one.poll()
    assert fake.orders == 1
    ids = {json.loads(line)["request_id"] for line in (fake.folder / "requests").read_text().splitlines()}
    assert ids == {"cloud-1"}


async def test_two_leaders_do_not_both_order(fake: Fake) -> None:
    client = FakeClient(Cluster("home"))
    one, other = provisioner(fake, client), provisioner(fake, client)
    await one.load()
    await other.load()
    await one.ask("scale", 1)
    with pytest.raises(Refused, match="exists"):
        await other.ask("scale", 1)
    assert not other.loaded
    await other.load()
    assert other.order == one.order


async def test_a_missing_command_is_reported() -> None:
    with pytest.raises(ProvisionerError, match="No such file"):
        await run_command(("/does/not/exist",), {}, 5.0)


@pytest.mark.parametrize("output", [b"", b"[]", b'{"state": "happy"}', b'{"state": "ready", "nodes": -1}', b"null"])
def test_nonsense_is_refused(output: bytes) -> None:
    with pytest.raises(ProvisionerError):
        parse_report(output)
