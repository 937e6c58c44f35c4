"""The reserve and the Lease against an API in memory: races, refusals, versions. The real one is in test_seats.py."""

from typing import Any

import pytest

from carico_agent.lib.kube.errors import Refused
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.plane.seats import NAME, NoFairness, Reserve

GROUP = "/apis/flowcontrol.apiserver.k8s.io"


class Api:
    """Objects by path, with versions; `meddle` is called before every write, as somebody else would come between."""

    def __init__(self, versions: list[str] | None) -> None:
        self.objects: dict[str, Any] = {}
        self.count = 0
        self.gone = "-"
        self.meddle = lambda: None
        if versions is not None:
            self.objects[GROUP] = {"versions": [{"version": version} for version in versions]}

    def put(self, path: str, thing: Any) -> Any:
        self.count += 1
        thing["metadata"] = {**thing["metadata"], "resourceVersion": str(self.count)}
        self.objects[path] = thing
        return thing

    async def get(self, path: str, params: Any = None) -> Any:
        if path in self.objects:
            return self.objects[path]
        below = [thing for place, thing in self.objects.items() if place.startswith(f"{path}/")]
        if path.startswith(self.gone) or (not below and not path.endswith("configurations")):
            raise Refused(404, "not found")
        return {"items": below}

    async def post(self, path: str, body: Any) -> Any:
        self._between()
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            raise Refused(409, "exists")
        return self.put(place, body)

    async def patch(self, path: str, body: Any) -> Any:
        self._between()
        old = await self.get(path)
        if body["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            raise Refused(409, "conflict")
        return self.put(path, {**old, **body, "metadata": {**old["metadata"], **body["metadata"]}})

    async def request(self, method: str, path: str, body: Any) -> Any:
        assert method == "DELETE"
        self._between()
        old = await self.get(path)
        if body["preconditions"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Refused(409, "conflict")
        return self.objects.pop(path)

    def _between(self) -> None:
        meddle, self.meddle = self.meddle, lambda: None
        meddle()


def reserve(api: Api) -> Reserve:
    return Reserve(api)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (["v1beta1"], "v1beta1"),
        (["v1beta2", "v1beta3"], "v1beta3"),
        (["v1", "v1beta3"], "v1"),
        (["v9", "v1beta2"], "v1beta2"),
    ],
)
async def test_the_newest_known_version(served: list[str], chosen: str) -> None:
    assert await reserve(Api(served)).version() == chosen


async def test_refused_by_name() -> None:
    with pytest.raises(NoFairness, match=r"no group flowcontrol\.apiserver\.k8s\.io"):
        await reserve(Api(None)).version()
    with pytest.raises(NoFairness, match="v7, v8 none is known"):
        await reserve(Api(["v7", "v8"])).levels()


async def test_written_read_and_removed() -> None:
    api = Api(["v1"])
    ours = reserve(api)
    assert await ours.write(500, None)
    seen = (await ours.levels()).ours
    assert seen is not None and (seen.shares, seen.edited) == (500, "")
    assert await ours.write(700, seen)
    assert not await ours.write(900, seen), "an old version is not written over"
    assert await ours.remove() == f"{NAME} (700 shares) is taken back"
    assert await ours.remove() == f"{NAME} is not there"


async def test_an_upgraded_server_has_moved_the_object() -> None:
    """A 404 of a version that is not served any more was taken for "it is not there", and the note was dropped."""
    api = Api(["v1beta3"])
    ours = reserve(api)
    assert await ours.write(500, None)
    old, new = (f"{GROUP}/{version}/prioritylevelconfigurations/{NAME}" for version in ("v1beta3", "v1"))
    api.objects[new] = api.objects.pop(old)
    api.objects[GROUP] = {"versions": [{"version": "v1"}]}
    api.gone = f"{GROUP}/v1beta3"
    seen = (await ours.levels()).ours
    assert seen is not None and seen.shares == 500
    ours._version = "v1beta3"
    assert await ours.remove() == f"{NAME} (500 shares) is taken back"
    assert new not in api.objects


async def test_whoever_comes_between_wins() -> None:
    api = Api(["v1"])
    ours, path = reserve(api), f"{GROUP}/v1/prioritylevelconfigurations/{NAME}"
    await ours.write(500, None)

    def edit() -> None:
        spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 3}}
        api.put(path, {**api.objects[path], "spec": spec})

    api.meddle = edit
    assert "left alone" in await ours.remove()
    assert path in api.objects


async def test_made_by_somebody_else_meanwhile() -> None:
    api = Api(["v1"])
    ours, path = reserve(api), f"{GROUP}/v1/prioritylevelconfigurations/{NAME}"
    api.meddle = lambda: api.put(path, {"metadata": {"name": NAME}, "spec": {}})  # type: ignore[assignment, return-value]
    assert not await ours.write(500, None)
    assert "not made by carico" in await ours.remove()


def lease(api: Api, who: str) -> LeaderLease:
    return LeaderLease(api, "carico", "carico-plane", who, 30.0)  # type: ignore[arg-type]


async def test_one_holds_the_other_waits() -> None:
    api = Api([])
    one, two = lease(api, "one"), lease(api, "two")
    assert await one.hold(0) and not await two.hold(0)
    assert await one.hold(20) and not await two.hold(40), "renewed at 20: seen by the second at 40"
    assert not await two.hold(70)
    assert await two.hold(71), "30 s after it was last seen to change"
    assert not await one.hold(72)
    await two.release()
    assert await one.hold(73), "given back: at once"


async def test_two_at_the_same_moment() -> None:
    api = Api([])
    one, two = lease(api, "one"), lease(api, "two")
    path = "/apis/coordination.k8s.io/v1/namespaces/carico/leases/carico-plane"
    api.meddle = lambda: api.put(path, {"metadata": {"name": "carico-plane"}, "spec": {"holderIdentity": "two"}})  # type: ignore[assignment, return-value]
    assert not await one.hold(0), "the second was faster"
    assert await two.hold(0)
    await one.release()
    assert api.objects[path]["spec"]["holderIdentity"] == "two", "not ours to release"
