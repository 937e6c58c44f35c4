"""Reservations over the local API, kept in a file so that a restart does not break a promise.

A reservation is answered after it was written and synced to the disk: it survives a crash of the agent and a power
failure. Requests that arrive while a write is under way share the next one. Where the file cannot be written, or not in
time, the reservation still holds in memory and says `"durable": false`.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, answer, peer, read_json, request_id
from carico_agent.lib.net.openapi import Operation, operation
from carico_agent.lib.net.times import boottime_s
from carico_agent.lib.supervise.files import replace_file
from carico_agent.lib.supervise.workers import Workers, WorkersBusy
from carico_agent.node.publish.latest import at_once
from carico_agent.node.reservations import BadReservation, NotAvailable, Reservation, Reservations, TooMany
from carico_agent.node.state import set_aside
from carico_agent.settings import Settings

log = logging.getLogger(__name__)

SAVE_WITHIN_S = 5.0
"""A reservation that is not on the disk after this long is answered as not durable [s]."""

WANTED = {
    "type": "object",
    "required": ["pods", "ttl_s"],
    "additionalProperties": False,
    "properties": {
        "pods": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "ttl_s": {"type": "number", "exclusiveMinimum": 0},
        "holder": {"type": "string", "maxLength": 253},
        "pod_uid": {"type": "string", "maxLength": 253},
        "workload": {"type": "string", "maxLength": 253},
    },
}
FIELDS: set[str] = set(WANTED["properties"])  # type: ignore[call-overload]
NO_ROOM = {409: "that many Pods do not fit; `available` says how many would", 413: "the body is too large"}


class ReservationApi:
    """Takes requests, and keeps what is reserved on disk."""

    def __init__(
        self,
        held: Reservations,
        path: Path,
        disk: Workers,
        room: Callable[[], float | None],
        changed: Callable[[], None],
        fits: Callable[[str], float | None] = lambda workload: None,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = boottime_s,
        current: Callable[[], Awaitable[object]] = at_once,
    ) -> None:
        """`current()` waits until `room` and `fits` are those of now. `room` is Pod-Capacity, `fits(workload)` how many
        more Pods of a workload fit."""
        self.held = held
        self._wall, self._steady, self._began_s = wall, steady, wall() - steady()
        self._path, self._disk = path, disk
        self._room, self._changed, self._fits = room, changed, fits
        self._current = current
        self._durable = True
        self._writing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Future[bool] | None = None
        self._load()

    def _load(self) -> None:
        try:
            self.held.restore(json.loads(self._path.read_bytes())["reservations"], self.now_s)
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            set_aside(self._path, str(error))

    @property
    def now_s(self) -> float:
        """The wall clock as if it was not set since the start: a promise lasts as long as it was made for."""
        return self._began_s + self._steady()

    def available(self, room: float | None) -> int:
        """Whole Pods that may still be reserved where `room` more fit."""
        return self.held.available(self.now_s, room)

    def reserved(self) -> int:
        return self.held.total(self.now_s)

    def take_settings(self, settings: Settings) -> None:
        """Limits that take effect while running."""
        limits = settings.reservations
        clients = settings.clients
        self.held.allow(limits.most, limits.max_ttl_s, clients.reserved_pods, clients.reserved_ratio)

    def pods_started(self, uids: Iterable[str]) -> None:
        if self.held and self.held.started(uids):
            self._changed()
            self._save_soon()

    def routes(self) -> dict[str, dict[str, Handler]]:
        return {
            "/v1/reservations": {"GET": self._list, "POST": self._reserve},
            "/v1/reservations/{id}": {"GET": self._show, "DELETE": self._release},
        }

    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        """room that is held, by whom and for how long"""
        await self._current()
        bodies = [self._body(reservation) for reservation in self.held.all(self.now_s)]
        return answer({"available": self.available(self._room()), "reservations": bodies})

    @operation(Operation(needs="reserve", gives=201, body=WANTED, errors=NO_ROOM))
    async def _reserve(self, request: web.BaseRequest) -> web.StreamResponse:
        """hold room for Pods on their way"""
        wanted, who = await read_json(request), peer(request)
        if unknown := sorted(wanted.keys() - FIELDS):
            raise ApiError(400, f"unknown field {unknown[0]}; known are {', '.join(sorted(FIELDS))}")
        for name in ("pods", "ttl_s"):
            if name not in wanted:
                raise ApiError(400, f"{name} is missing")
        await self._current()
        try:
            owner = "" if who.trusted else who.name
            room = self._room()
            made = self.held.reserve(self.now_s, room, **wanted, owner=owner, each=self._each(wanted, room))
        except NotAvailable as error:
            raise ApiError(409, str(error), available=error.available) from error
        except TooMany as error:
            raise ApiError(429, str(error), {"Retry-After": "1"}) from error
        except BadReservation as error:
            raise ApiError(400, str(error)) from error
        self._changed()
        durable = await self._saved()
        return answer({**self._body(made), "available": self.available(self._room()), "durable": durable}, 201)

    def _each(self, wanted: dict[str, Any], room: float | None) -> float:
        """Places that one of the wanted Pods takes: of a workload of which half as many fit, two."""
        workload = wanted.get("workload", "")
        if not isinstance(workload, str) or not workload or not room:
            return 1.0
        fits = self._fits(workload)
        if fits is None:
            return 1.0
        if fits <= 0:
            raise NotAvailable(0)
        return room / fits

    async def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        """one reservation"""
        return answer(self._body(self._find(request)))

    @operation(Operation(needs="reserve"))
    async def _release(self, request: web.BaseRequest) -> web.StreamResponse:
        """give it back"""
        released, who = self._find(request), peer(request)
        if not who.trusted and released.owner != who.name:
            raise ApiError(403, f"{who.name} did not make this reservation")
        self.held.release(released.id)
        self._changed()
        await self._saved()
        return answer({"released": released.id, "available": self.available(self._room())})

    def _find(self, request: web.BaseRequest) -> Reservation:
        found = self.held.find(request_id(request), self.now_s)
        if found is None:
            raise ApiError(404, f"no reservation {request_id(request)!r} is held")
        return found

    def _body(self, reservation: Reservation) -> dict[str, Any]:
        left_s = round(max(0.0, reservation.expires_s - self.now_s), 3)
        body: dict[str, Any] = {"id": reservation.id, "pods": reservation.pods, "holder": reservation.holder}
        named = {"pod_uid": reservation.pod_uid, "workload": reservation.workload}
        return {**body, "expires_in_s": left_s, **{name: value for name, value in named.items() if value}}

    async def _saved(self) -> bool:
        """Wait until a write that began after this moment has ended; whether it is on the disk."""
        self._save_soon()
        waiting = self._waiting
        assert waiting is not None
        ended, _ = await asyncio.wait([waiting], timeout=SAVE_WITHIN_S)
        return waiting.result() if ended else False

    def _save_soon(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while (waiting := self._waiting) is not None:
            self._waiting = None
            set_by_s = self._wall() - self.now_s  # what the clock was set by meanwhile: the next start reads that clock
            rows = [row | {"expires_s": row["expires_s"] + set_by_s} for row in self.held.state()]
            encoded = json.dumps({"version": 1, "reservations": rows}).encode()
            try:
                await self._disk.run(replace_file, self._path, encoded, 0o600, synced=True)
                self._set_durable(True)
            except (OSError, WorkersBusy) as error:
                self._set_durable(False, str(error))
            waiting.set_result(self._durable)
        self._writing = None

    def _set_durable(self, durable: bool, why: str = "") -> None:
        if durable != self._durable:
            log.warning("reservations %s", "are kept on disk again" if durable else f"are kept in memory only: {why}")
        self._durable = durable
