"""Room held for Pods that are on their way: available = slots − Pods − reserved.

Room is counted in places of the next Pod to arrive. A reservation may name the workload of its Pods: one that is twice
as heavy takes two places. Limits per client count Pods, not reservations, and one client never holds all room: a group
of clients shares a node, and the first of them must not be able to close it for the others.

A reservation ends when it is released, when its time is up, or when the Pod it names starts (from then on the Pod
itself is counted). Plain data, no clock of its own: times are wall clock, so that they survive a restart.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import floor, inf, isfinite
from typing import Any


class NotAvailable(Exception):
    """Not that many Pods fit; `available` is how many would."""

    def __init__(self, available: int) -> None:
        super().__init__(f"room for {available} more Pods is available")
        self.available = available


class TooMany(Exception):
    """This client holds as much room as one client may."""


class BadReservation(ValueError):
    """The request makes no sense; says why."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room for some Pods until `expires_s` (seconds since 1970)."""

    id: str
    pods: int
    holder: str
    expires_s: float
    pod_uid: str = ""
    owner: str = ""
    """The client that made it, by the kernel's word (`holder` is what it calls itself); only it and root release it."""
    workload: str = ""
    """What its Pods are, if the client named it."""
    each: float = 1.0
    """Places that one of its Pods takes."""

    @property
    def places(self) -> float:
        return self.pods * self.each


class Reservations:
    """All reservations of this node.

    >>> held = Reservations(most=10, max_ttl_s=60)
    >>> one = held.reserve(now_s=0.0, room=2.9, pods=2, ttl_s=30, holder="batch")
    >>> held.available(now_s=1.0, room=2.9), held.available(now_s=31.0, room=2.9)
    (0, 2)
    """

    def __init__(self, most: int, max_ttl_s: float, owner_pods: int = 0, owner_ratio: float = 1.0) -> None:
        self.allow(most, max_ttl_s, owner_pods, owner_ratio)
        self._held: dict[str, Reservation] = {}

    def allow(self, most: int, max_ttl_s: float, owner_pods: int = 0, owner_ratio: float = 1.0) -> None:
        """New bounds; what is held stays. One owner holds at most `owner_pods` Pods (0: any number) and at most
        `owner_ratio` of all room, but always one Pod."""
        self._most, self._max_ttl_s = most, max_ttl_s
        self._owner_pods, self._owner_ratio = owner_pods, owner_ratio

    def available(self, now_s: float, room: float | None, each: float = 1.0) -> int:
        """Whole Pods of `each` places that may still be promised, given Pod-Capacity `room`; none when unknown."""
        if room is None or not isfinite(room):
            return 0
        self._expire(now_s)
        return max(0, floor((room - sum(reservation.places for reservation in self._held.values())) / each + 1e-9))

    def __bool__(self) -> bool:
        """Whether there are any, expired ones included."""
        return bool(self._held)

    def total(self, now_s: float) -> int:
        self._expire(now_s)
        return sum(reservation.pods for reservation in self._held.values())

    def all(self, now_s: float) -> list[Reservation]:
        self._expire(now_s)
        return list(self._held.values())

    def reserve(
        self,
        now_s: float,
        room: float | None,
        pods: Any,
        ttl_s: Any,
        holder: Any = "",
        pod_uid: Any = "",
        owner: str = "",
        workload: Any = "",
        each: float = 1.0,
    ) -> Reservation:
        """Hold room for `pods` Pods of `each` places, or raise NotAvailable. Check and promise are one step."""
        if not isinstance(pods, int) or isinstance(pods, bool) or not 1 <= pods <= 10_000:
            raise BadReservation(f"pods: a whole number from 1 to 10000 is expected, not {pods!r}")
        if not isinstance(ttl_s, int | float) or isinstance(ttl_s, bool) or not 0 < ttl_s <= self._max_ttl_s:
            raise BadReservation(f"ttl_s: seconds up to {self._max_ttl_s:g} are expected, not {ttl_s!r}")
        for name, value in (("holder", holder), ("pod_uid", pod_uid), ("workload", workload)):
            if not isinstance(value, str) or len(value) > 253:
                raise BadReservation(f"{name}: text of at most 253 characters is expected, not {value!r:.60}")
        available = self.available(now_s, room, each)
        if pods > available:
            raise NotAvailable(available)
        if len(self._held) >= self._most:
            raise BadReservation(f"{self._most} reservations are held already; release some or raise reservations.most")
        made = Reservation(secrets.token_hex(8), pods, holder, now_s + ttl_s, pod_uid, owner, workload, each)
        if owner and room is not None:
            self._check_owner(made, room)
        self._held[made.id] = made
        return made

    def _check_owner(self, made: Reservation, room: float) -> None:
        own = [reservation for reservation in self._held.values() if reservation.owner == made.owner]
        if 0 < self._owner_pods < made.pods + sum(reservation.pods for reservation in own):
            raise TooMany(f"{made.owner} may hold {self._owner_pods} Pods; release some")
        places = made.places + sum(reservation.places for reservation in own)
        if places > max(made.each, self._owner_ratio * room) + 1e-9:
            raise TooMany(f"{made.owner} may hold {self._owner_ratio:.0%} of the room here; the rest is for others")

    def find(self, key: str, now_s: float) -> Reservation | None:
        self._expire(now_s)
        return self._held.get(key)

    def release(self, key: str) -> Reservation | None:
        return self._held.pop(key, None)

    def started(self, uids: Iterable[str]) -> list[Reservation]:
        """These Pods run now and are counted: what was held for them ends."""
        running = set(uids) - {""}
        ended = [reservation for reservation in self._held.values() if reservation.pod_uid in running]
        for reservation in ended:
            del self._held[reservation.id]
        return ended

    def _expire(self, now_s: float) -> None:
        for reservation in [r for r in self._held.values() if r.expires_s <= now_s]:
            del self._held[reservation.id]

    def state(self) -> list[dict[str, Any]]:
        return [asdict(reservation) for reservation in self._held.values()]

    def restore(self, rows: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Continue from saved rows. None may last longer than allowed, whatever the clock did meanwhile."""
        for row in rows:
            try:
                held = self._restored(Reservation(**row), now_s)
            except OverflowError as error:
                raise ValueError("a number beyond all bounds") from error
            self._held[held.id] = held
        self._expire(now_s)

    def _restored(self, saved: Reservation, now_s: float) -> Reservation:
        expires_s = min(float(saved.expires_s), now_s + self._max_ttl_s)
        if not 0 < float(saved.each) < inf:
            raise ValueError(f"{saved.each} places for one Pod")
        texts = str(saved.pod_uid), str(saved.owner), str(saved.workload)
        return Reservation(str(saved.id), int(saved.pods), str(saved.holder), expires_s, *texts, float(saved.each))
