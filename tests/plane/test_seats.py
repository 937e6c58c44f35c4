"""Seats on a real control plane: exactly as computed, and all back after exit, kill -9, restore and uninstall."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico_agent.plane.exposition import read
from carico_agent.plane.seats import NAME, read_levels
from carico_agent.plane.shares import kept_of, reserve_for, seats_of
from carico_agent.service.commands.restore import give_seats_back
from lab.support.control_plane import Plane, binaries, running
from lab.support.kube_admin import AdminError
from lab.support.waiting import free_port, wait_for
from tests.conftest import TREE

pytestmark = pytest.mark.kube

MOMENTS = int(os.environ.get("CARICO_KILL_MOMENTS", "6"))
"""How often it is killed; 50 for the full measurement."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    try:
        binaries()
    except LookupError as error:
        pytest.skip(f"no control plane: {error}")
    for plane in running(tmp_path_factory.mktemp("plane")):
        plane.apply(TREE / "deploy/base/00-namespace.yaml", *sorted((TREE / "deploy/plane").glob("[0-9]*.yaml")))
        yield plane


class Service:
    """`carico plane --serve` as a process, with the rights that deploy/plane gives it."""

    def __init__(self, plane: Plane, folder: Path, seats: str = "write", **plane_settings: Any) -> None:
        self.plane, self.folder, self.port = plane, folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "seats": seats,
            "period_s": 1,
            "busy_ratio": 0.0,
            "min_seats": 23,
            "listen": f"127.0.0.1:{self.port}",
            **plane_settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        state = json.dumps(str(folder / "var/lib/carico-plane"))
        (folder / "config.toml").write_text("\n".join(["[node]", f"state = {state}", "[plane]", *lines, ""]))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Service":
        command = [sys.executable, "-m", "carico_agent", "plane", "--serve", *self.arguments]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=TREE, stdout=log, stderr=log)
        return self

    @property
    def arguments(self) -> list[str]:
        config = str(self.folder / "config.toml")
        return ["--config", config, "--kubeconfig", str(self.plane.kubeconfig("plane-token"))]

    def shown(self) -> Any:
        assert self.process is not None and self.process.poll() is None, (self.folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/plane", timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError):
            return None

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def wrote(self) -> Any:
        """Until it holds seats back."""
        return wait_for(lambda: (seen := self.shown()) and seen["seats"]["reserve_shares"] and seen, "seats are held")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@pytest.fixture
def service(plane: Plane, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(name: str = "one", **settings: Any) -> Service:
        made.append(Service(plane, tmp_path / name, **settings))
        return made[-1].start()

    with traffic(plane):
        yield make
        for one in made:
            if one.process is not None and one.process.poll() is None:
                one.end(signal.SIGKILL)
    for path in (reserve(plane), "/apis/coordination.k8s.io/v1/namespaces/carico/leases/carico-plane"):
        if missing(plane, path) is False:
            plane.admin.delete(path)


class traffic:
    """A few requests per second by somebody else, so that there is something to size."""

    def __init__(self, plane: Plane) -> None:
        self._plane, self._ended = plane, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._plane.admin.get("/api/v1/namespaces")


GROUP = "/apis/flowcontrol.apiserver.k8s.io"
LIMIT = "apiserver_flowcontrol_nominal_limit_seats"


def levels_path(plane: Plane) -> str:
    """In the version that this server prefers."""
    return f"{GROUP}/{plane.admin.get(GROUP)['preferredVersion']['version']}/prioritylevelconfigurations"


def reserve(plane: Plane) -> str:
    return f"{levels_path(plane)}/{NAME}"


SHARES = "nominalConcurrencyShares"


def shares_of(plane: Plane) -> int:
    return int(plane.admin.get(reserve(plane))["spec"]["limited"][SHARES])


def missing(plane: Plane, path: str) -> bool:
    try:
        plane.admin.get(path)
    except AdminError as error:
        assert error.status == 404
        return True
    return False


def applied(plane: Plane) -> dict[str, int]:
    """Seats per level as the API server itself says; exempt levels have none."""
    found = read([plane.admin.get("/metrics").encode()], {LIMIT: ("priority_level",)})
    values = found[LIMIT]
    return {level: round(value) for (level,), value in values.items() if value}


def defaults(plane: Plane) -> dict[str, Any]:
    items = plane.admin.get(levels_path(plane))["items"]
    return {item["metadata"]["name"]: item["spec"] for item in items if item["metadata"]["name"] != NAME}


def back(plane: Plane, before: dict[str, int]) -> None:
    assert missing(plane, reserve(plane))

    def same() -> bool:
        now = applied(plane)
        return {level: now[level] for level in before} == before

    wait_for(same, "the levels have their seats back", 10)


def outside(plane: Plane) -> dict[str, int]:
    return {level: seats for level, seats in applied(plane).items() if level != NAME}


def test_seats_are_exactly_as_computed_and_back_after_exit(plane: Plane, service: Callable[..., Service]) -> None:
    before, specs = outside(plane), defaults(plane)
    one = service()
    one.wrote()
    shares, key = shares_of(plane), SHARES
    computed = seats_of(600, {name: spec["limited"][key] for name, spec in specs.items() if "limited" in spec}, shares)
    wait_for(lambda: outside(plane) == computed, f"the API server has applied {computed}", 5)
    shown = one.shown()["seats"]
    assert shown["levels"] == computed and shown["state"] in ("write", "hold")
    assert sum(computed.values()) >= 23 > 0 and min(computed.values()) >= 1
    assert defaults(plane) == specs, "nothing else was touched"
    text = one.text("/metrics")
    assert f"carico_plane_reserve_shares {shares}" in text and 'carico_plane_cores{component="kube-apiserver"}' in text
    assert one.end() == 0
    back(plane, before)


def test_killed_at_any_moment(plane: Plane, service: Callable[..., Service]) -> None:
    """The next start takes back what is left, whenever the last one died; so does `carico restore`."""
    before, choose = outside(plane), random.Random(19)
    one = service()
    one.wrote()
    held = 0
    for moment in range(MOMENTS):
        time.sleep(choose.uniform(0.0, 1.5))
        one.end(signal.SIGKILL)
        held += not missing(plane, reserve(plane))
        if moment % 2:
            result = subprocess.run(
                [sys.executable, "-m", "carico_agent", "restore", *one.arguments[:2]], cwd=TREE, capture_output=True
            )
            assert result.returncode == 0, result.stderr
        else:
            quiet = Service(plane, one.folder, seats="recommend")
            quiet.start()
            wait_for(quiet.shown, "it serves")
            wait_for(lambda: missing(plane, reserve(plane)), "the next start takes it back")
            assert quiet.end() == 0
        back(plane, before)
        one = Service(plane, one.folder)
        one.start()
        if choose.random() < 0.5:
            one.wrote()
    one.end(signal.SIGKILL)
    subprocess.run([sys.executable, "-m", "carico_agent", "restore", *one.arguments[:2]], cwd=TREE, check=True)
    back(plane, before)
    assert held, "it was never killed while it held seats"


def test_uninstall_gives_seats_back(plane: Plane, service: Callable[..., Service]) -> None:
    before = outside(plane)
    one = service()
    one.wrote()
    one.end(signal.SIGKILL)
    lines, failed = give_seats_back(
        [one.folder / "var/lib/carico-plane"]
    )  # of `/` only, which is not ours to uninstall
    assert not failed and "is taken back" in lines[0]
    back(plane, before)


def test_an_edited_object_is_left_to_whoever_edited_it(plane: Plane, service: Callable[..., Service]) -> None:
    one = service()
    one.wrote()
    plane.admin.merge(reserve(plane), {"spec": {"limited": {SHARES: 17}}})
    seen = wait_for(lambda: (now := one.shown()) and now["seats"]["state"] == "yield" and now, "it yields")
    assert "another client changed it" in seen["seats"]["why"]
    assert one.end() == 0
    assert shares_of(plane) == 17


def test_a_deleted_object_is_not_made_again(plane: Plane, service: Callable[..., Service]) -> None:
    one = service()
    one.wrote()
    plane.admin.delete(reserve(plane))
    seen = wait_for(lambda: (now := one.shown()) and now["seats"]["state"] == "yield" and now, "it yields")
    assert "deleted" in seen["seats"]["why"]
    assert one.end() == 0


def test_what_a_killed_pod_left_is_adopted(plane: Plane, service: Callable[..., Service]) -> None:
    """A Pod's folder goes with it: the next one knows of the level by its annotation only."""
    first = service("one")
    first.wrote()
    first.end(signal.SIGKILL)
    second = service("two")
    wait_for(
        lambda: (now := second.shown()) and now["seats"]["leader"].endswith("two/var/lib/carico-plane"),
        "the second leads when the Lease of the first has ended",
    )
    second.wrote()
    assert second.end() == 0
    assert missing(plane, reserve(plane))


def test_the_lease_decides_between_two(plane: Plane, service: Callable[..., Service]) -> None:
    first = service("one")
    first.wrote()
    second = service("two")
    seen = wait_for(lambda: (now := second.shown()) and "Lease" in now["seats"]["why"] and now, "the second waits")
    assert seen["seats"]["leader"].endswith("one/var/lib/carico-plane")
    version = plane.admin.get(reserve(plane))["metadata"]["generation"]
    assert second.end() == 0
    assert plane.admin.get(reserve(plane))["metadata"]["generation"] == version, "the second touched nothing"
    third = service("three")
    assert first.end() == 0
    third.wrote()  # at once: the first gave the Lease back
    assert third.end() == 0
    assert missing(plane, reserve(plane))


def test_without_metrics_seats_are_held_then_given_back(plane: Plane, service: Callable[..., Service]) -> None:
    """The right to read /metrics is taken away; the other rights stay."""
    one = service()
    one.wrote()
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/carico-plane"
    rules = plane.admin.get(role)["rules"]
    try:
        plane.admin.merge(role, {"rules": [rule for rule in rules if "nonResourceURLs" not in rule]})
        seen = wait_for(lambda: (now := one.shown()) and now["missed"] and now, "metrics are away")
        assert seen["missed"] >= 3 or not missing(plane, reserve(plane)), "held at first"
        wait_for(lambda: missing(plane, reserve(plane)), "given back at the third")
        assert one.shown()["missed"] >= 3
    finally:
        plane.admin.merge(role, {"rules": rules})
    one.wrote()


def test_recommend_writes_nothing(plane: Plane, service: Callable[..., Service]) -> None:
    before = outside(plane)
    one = service(seats="recommend")
    wait_for(
        lambda: (now := one.shown()) and now["diagnosis"] and isinstance(now["diagnosis"]["recommendation"], dict),
        "recommended",
    )
    assert outside(plane) == before and missing(plane, reserve(plane))
    assert one.end() == 0


def test_diagnosis_of_a_real_api_server(plane: Plane, service: Callable[..., Service], tmp_path: Path) -> None:
    (plane.folder / "audit.log").touch()  # the API server makes it with the first request that it writes down
    command = [sys.executable, "-m", "carico_agent", "plane", "--interval", "2", "--plot", str(tmp_path / "f.png")]
    access = [
        "--kubeconfig",
        str(plane.kubeconfig("plane-token")),
        "--audit",
        str(plane.folder / "audit.log"),
        "--json",
    ]
    result = subprocess.run([*command, *access], cwd=TREE, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    (api,) = seen["components"]
    assert api["arrivals_per_s"] > 5 and api["cores"] > 0 and api["seats"] == sum(outside(plane).values())
    assert any(one["what"] == "LIST namespaces" for one in seen["verbs"])
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    refused = subprocess.run(
        [*command, "--kubeconfig", str(plane.kubeconfig("nobody-token"))], cwd=TREE, capture_output=True, text=True
    )
    assert refused.returncode == 1 and "403" in refused.stderr


LOWER = "apiserver_flowcontrol_lower_limit_seats"
"""What a level keeps when others borrow all they may (1.26 and newer)."""


def test_what_levels_need_is_kept_though_others_borrow(plane: Plane) -> None:
    """The reserve is sized for needs of 4 and 3 seats. The API server itself says how many of its seats a level keeps
    when others borrow: as many as computed, and not fewer than needed."""
    if plane.version < (1, 26):
        pytest.skip("levels do not lend before 1.26")
    path = levels_path(plane)
    version = path.split("/")[3]
    found = read_levels(plane.admin.get(path)["items"], version)
    assert found.lendable["workload-high"] > 0
    needs, server = {"workload-high": 4, "system": 3}, 600
    shares = reserve_for(server, found.shares, 1, needs, found.lendable)
    limited = {"nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"}}
    limited |= {"lendablePercent": 0, "borrowingLimitPercent": 0}
    plane.admin.post(path, {"metadata": {"name": NAME}, "spec": {"type": "Limited", "limited": limited}})
    seats = seats_of(server, found.shares, shares)
    computed = {level: kept_of(seats[level], found.lendable[level]) for level in seats}

    def kept() -> dict[str, int]:
        seen = read([plane.admin.get("/metrics").encode()], {LOWER: ("priority_level",)})
        return {level: round(value) for (level,), value in seen[LOWER].items() if level in computed}

    try:
        wait_for(lambda: kept() == computed, "the API server keeps as many seats as computed")
        assert all(kept()[level] >= need for level, need in needs.items())
    finally:
        plane.admin.delete(f"{path}/{NAME}")
