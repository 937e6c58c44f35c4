"""The reserve of seats on an API server: decided in plane/control.py, carried out here, and always taken back.

A note in the state folder says that a reserve of ours may stand there. The next start, `carico restore` and `carico
uninstall` read it.
"""

import fcntl
import json
import logging
import socket
from pathlib import Path
from typing import IO, Any

from carico_agent.lib.kube.client import KubeClient
from carico_agent.lib.kube.leader import LeaderLease
from carico_agent.lib.kubernetes import access_of
from carico_agent.lib.net.times import boottime_s
from carico_agent.lib.supervise.files import replace_file
from carico_agent.plane.control import COOLING, ServerState, Step, decide
from carico_agent.plane.observer import Observation
from carico_agent.plane.seats import NAME, Levels, Reserve
from carico_agent.plane.shares import ServerSeats, seats_of
from carico_agent.settings import KubernetesSettings, Settings

log = logging.getLogger(__name__)


class Note:
    """A file that says that a reserve of ours may stand on an API server; written before it, removed after it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plane-reserve.json"

    def exists(self) -> bool:
        return self.path.exists()

    def write(self, kubernetes: KubernetesSettings) -> None:
        where = {"kubeconfig": kubernetes.kubeconfig, "context": kubernetes.context, "object": NAME}
        replace_file(self.path, json.dumps(where).encode(), mode=0o600, synced=True)

    def read(self) -> KubernetesSettings:
        where = json.loads(self.path.read_text())
        return KubernetesSettings(kubeconfig=str(where["kubeconfig"]), context=str(where["context"]))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


async def give_back(folder: Path) -> str:
    """For `carico restore` and `carico uninstall`: take a reserve back that a note names; empty: there is none.
    Raises KubeError or OSError; the note then stays."""
    note = Note(folder)
    if not note.exists():
        return ""
    with lock(folder):
        async with KubeClient(access_of(note.read())) as client:
            done = await Reserve(client).remove()
        note.remove()
    return done


def lock(folder: Path) -> IO[str]:
    """One instance per state folder; raises BlockingIOError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "plane.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, f"another carico plane uses {folder}; stop it first") from error
    return file


class SeatKeeper:
    """Carries out what `control.decide` says, and remembers what it came to."""

    def __init__(self, client: KubeClient, settings: Settings, note: Note) -> None:
        own = settings.plane
        self._settings, self._note = settings, note
        self._reserve = Reserve(client)
        identity = f"{socket.gethostname()}:{note.path.parent}"
        lasts_s = max(15.0, 3 * own.period_s)
        self.lease = LeaderLease(
            client, own.namespace, "carico-plane", identity, lasts_s, owners=lambda: self._reserve.owners
        )
        self.server = ServerSeats()
        self.step = Step("hold", why="starting")
        self.levels = Levels()
        self.shares = 0
        self._yielded = ""
        self._calm = self._cooling = 0
        self._looked = self._owned = False
        self._stable: dict[str, int] | None = None

    async def begin(self) -> None:
        """What an earlier run has left is taken back before anything else; once."""
        if not self._looked and self._note.exists() and await self._leads():
            log.info("%s", await self._reserve.remove())
            self._note.remove()

    async def keep(self, seen: Observation, missed: int) -> None:
        """One period; raises KubeError."""
        mode = self._settings.plane.seats
        if mode == "off" and self._looked and not self._note.exists():
            self.step = Step("hold", why="seats = 'off'")
            return
        self.levels = await self._reserve.levels()
        self._looked = True
        if seen.seats and self._stable in (None, self.levels.all_shares):
            self.server.see(seen.seats, self.levels.all_shares)
        self._stable = self.levels.all_shares
        leads = await self._leads() if mode == "write" or self.levels.ours else True
        self._calm = self._calm + 1 if isinstance(seen.recommendation, str) else 0
        step = decide(self._situation(seen, missed, leads))
        self._cooling = COOLING if step.action == "remove" and seen.held_up else max(0, self._cooling - 1)
        await self._carry_out(step, leads)
        if step != self.step and step.why:
            log.info("seats: %s %s", step.action, step.why)
        self.step = step

    def _situation(self, seen: Observation, missed: int, leads: bool) -> ServerState:
        return ServerState(
            self._settings.plane.seats,
            self.levels,
            self.server.value,
            seen.recommendation,
            missed,
            leads,
            self.shares if leads else 0,
            self._yielded,
            self._calm,
            seen.held_up,
            self._cooling,
            seen.widths,
        )

    async def _carry_out(self, step: Step, leads: bool) -> None:
        ours = self.levels.ours
        self.shares = ours.shares if ours and not ours.edited else 0
        if leads and self.shares and not self._note.exists():  # left by one that was killed elsewhere: ours now
            self._note.write(self._settings.kubernetes)
        if step.action == "write":
            self._note.write(self._settings.kubernetes)
            if await self._reserve.write(step.shares, ours):
                self.shares = step.shares
                self._stable = {**self.levels.shares, NAME: step.shares}
        elif step.action == "remove":
            await self._reserve.remove()
            self._note.remove()
            self.shares, self._stable = 0, dict(self.levels.shares)
        elif step.action == "yield":
            self._note.remove()
            self.shares, self._yielded = 0, step.why

    async def _leads(self) -> bool:
        if not self._owned:
            await self._reserve.find_owner()
            self._owned = True
        return await self.lease.hold(boottime_s())

    async def end(self) -> None:
        """Everything back; raises KubeError, and then the note stays."""
        if self._note.exists() and await self._leads():
            log.info("%s", await self._reserve.remove())
            self._note.remove()
        await self.lease.release()

    def as_json(self) -> dict[str, Any]:
        computed = seats_of(self.server.value, self.levels.shares, self.shares) if self.levels.shares else {}
        return {
            "mode": self._settings.plane.seats,
            "state": self.step.action,
            "why": self.step.why,
            "reserve_shares": self.shares,
            "server_seats": self.server.value if self.server.known else None,
            "levels": computed,
            "leader": self.lease.holder,
        }
