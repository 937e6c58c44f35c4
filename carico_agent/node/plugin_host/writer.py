"""The only code that writes to a cgroup: journal first, then write, then read back.

Each request is checked at first (is the file ours to write, is it the same cgroup, is the value new, is it too soon),
then those left are carried out in two passes, so that no group is ever outside its parent: what grows, parents first;
then what shrinks, children first. cpu.max.burst shrinks before cpu.max (koordinator #2778).

What remains: a foreign write in the microseconds between our read and our write is overwritten, as with every agent;
the kernel offers no compare-and-set.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from carico_agent.node.plugin_host import knobs
from carico_agent.node.plugin_host.cgroupfs import CgroupFiles, Gone
from carico_agent.node.plugin_host.deadline import BoundedCall
from carico_agent.node.plugin_host.journal import Entry, Journal, Knob
from carico_agent.node.plugin_host.outcomes import OutcomeLog
from carico_agent.node.plugin_host.restore import PAGE_BYTES, Restored, close_entry, ordered, put_back, spelled
from carico_agent.node.plugin_host.write_rate import WriteLimits, WriteRate
from carico_agent.plugin_api import Change, Outcome, State

log = logging.getLogger(__name__)

MAX_HANGING = 4
"""So many writes may hang in the kernel; then no other begins."""


@dataclass(slots=True)
class _Step:
    """A request that passed every check, on its way into the kernel."""

    change: Change
    knob: Knob
    old: str
    new: str
    outcome: Outcome | None = None
    passes: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        action = knobs.is_action(self.knob.key)
        self.passes = ("" if action else knobs.larger(self.knob.key, self.old, self.new), self.new)


class CgroupWriter:
    """Carries out the requests of all plugins; one batch at a time.

    `journal` None means there is none (dry-run, or no place to keep it): then nothing is ever written.
    `owner_of(key)` names who else rules a file, or is None.
    """

    def __init__(
        self,
        journal: Journal | None,
        dry_run: bool = True,
        limits: WriteLimits | None = None,
        owner_of: Callable[[str], str | None] = lambda key: None,
        files: CgroupFiles | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dry_run = dry_run or journal is None
        self.outcomes = OutcomeLog()
        self._journal, self._files, self._owner_of = journal, files or CgroupFiles(), owner_of
        self._rate = WriteRate(limits or WriteLimits(), clock)
        self._lock = threading.RLock()
        self._flying: dict[Knob, BoundedCall] = {}
        self._yielded: dict[Knob, str] = {}
        self._abandoned: set[Knob] = set()
        self._stopped = False

    # -- requests ----------------------------------------------------------------------------------------------------

    def write(self, plugin: str, changes: Sequence[Change]) -> list[Outcome]:
        with self._lock:
            checked = [self._check(change) for change in changes]
            self._carry_out(plugin, [step for step in checked if isinstance(step, _Step)])
            outcomes = [
                step.outcome or _outcome(step.change, "failed", step.old) if isinstance(step, _Step) else step
                for step in checked
            ]
        for outcome in outcomes:
            self.outcomes.add(plugin, outcome)
        return outcomes

    def _check(self, change: Change) -> _Step | Outcome:
        """Either a step to take or the reason why not."""
        if reason := self._never(change.key):
            return _outcome(change, "refused", None, reason)
        if knobs.is_action(change.key):
            return self._check_action(change)
        try:
            new = knobs.canon(change.key, change.value, PAGE_BYTES)
            old = spelled(change.key, self._files.read(change.cgroup, change.inode, change.key))
        except ValueError as error:
            return _outcome(change, "refused", None, str(error))
        except Gone as gone:
            return _outcome(change, "gone", None, str(gone))
        except FileNotFoundError:
            return _outcome(change, "refused", None, f"no {change.key} there: its controller is not enabled")
        except OSError as error:
            return _outcome(change, "failed", None, f"reading: {error.strerror}")
        knob = self._knob(change.cgroup, change.inode, change.key)
        if reason := self._not_ours_any_more(knob, old):
            return _outcome(change, "refused", old, reason)
        if old == new:
            return _outcome(change, "unchanged", old)
        if reason := self._rate.too_soon(knob, old, new) or self._too_much(knob):
            return _outcome(change, "held", old, reason)
        if self.dry_run:
            return _outcome(change, "dry-run", old, f"would write {new!r}: {change.reason}")
        return _Step(change, knob, old, new)

    def _check_action(self, change: Change) -> _Step | Outcome:
        knob = self._knob(change.cgroup, change.inode, change.key)
        if reason := self._too_much(knob):
            return _outcome(change, "held", None, reason)
        if self.dry_run:
            return _outcome(change, "dry-run", None, f"would write {change.value!r}: {change.reason}")
        return _Step(change, knob, "", change.value)

    def _never(self, key: str) -> str | None:
        if self._stopped:
            return "the agent is stopping"
        if key not in knobs.KNOBS:
            return f"{key} is not a file we write"
        return self._owner_of(key)

    def _knob(self, cgroup: str, inode: int, key: str) -> Knob:
        return Knob(self._journal.boot if self._journal else "", cgroup, inode, key)

    def _not_ours_any_more(self, knob: Knob, now: str) -> str | None:
        """Another program wrote over our value: from now on the file is theirs, for as long as the cgroup lives."""
        entry = self._entry(knob)
        expected = [] if entry is None else entry.ours if entry.applied else [*entry.ours, entry.original]
        if entry is not None and knob not in self._flying and now not in expected:
            self._yielded[knob] = f"another program wrote {now!r} over ours: left to it"
        if entry is not None and knob in self._yielded:
            log.warning("%s/%s: %s", knob.cgroup, knob.key, self._yielded[knob])
            self._close_entry(Restored(entry, "foreign", self._yielded[knob]))
        return self._yielded.get(knob)

    def _too_much(self, knob: Knob) -> str | None:
        if knob in self._flying:
            return "an earlier write has not ended yet"
        if len(self._flying) >= MAX_HANGING:
            return f"{len(self._flying)} writes hang in the kernel"
        return self._rate.too_many()

    # -- carrying out ------------------------------------------------------------------------------------------------

    def _carry_out(self, plugin: str, steps: list[_Step]) -> None:
        self._forget_the_dead()
        for step in sorted(steps, key=_growing):
            if step.passes[0] != step.old:
                self._put(plugin, step, step.passes[0])
        for step in sorted(steps, key=_shrinking):
            if step.passes[1] != step.passes[0] and (step.outcome is None or step.outcome.state == "written"):
                self._put(plugin, step, step.passes[1])
        if steps:
            self._note(Journal.compact)

    def _put(self, plugin: str, step: _Step, value: str) -> None:
        """One value into one file: journal, write, read back."""
        knob, change = step.knob, step.change
        assert self._journal is not None
        if len(self._flying) >= MAX_HANGING:
            step.outcome = _outcome(change, "held", step.old, f"{len(self._flying)} writes hang in the kernel")
            return
        before = step.old if step.outcome is None else step.passes[0]
        if reason := self._moved(step, before):
            step.outcome = _outcome(change, "held", step.old, reason)
            return
        try:
            if knobs.is_action(knob.key):
                self._journal.append("action", **knob._asdict(), new=value, plugin=plugin, reason=change.reason)
            else:
                self._journal.intent(knob, before, value, plugin, change.reason)
        except OSError as error:
            step.outcome = _outcome(change, "refused", step.old, f"not written, the journal failed: {error.strerror}")
            return
        self._rate.wrote(knob)
        call = self._launch(knob, lambda: self._files.write(knob.cgroup, knob.inode, knob.key, value))
        if not call.wait(self._rate.limits.write_deadline_s):
            step.outcome = _outcome(
                change, "pending", step.old, "the kernel has not answered yet; it goes on by itself"
            )
            return
        self._flying.pop(knob, None)
        step.outcome = self._read_back(step, before, value, call.error)

    def _moved(self, step: _Step, before: str) -> str | None:
        """A batch may have waited seconds for the kernel since it checked: look again, right before writing."""
        knob = step.knob
        if knobs.is_action(knob.key):
            return None
        try:
            now = spelled(knob.key, self._files.read(knob.cgroup, knob.inode, knob.key))
        except (OSError, Gone) as error:
            return f"not there any more: {error}"
        return None if now == before else f"changed to {now!r} while we were about to write"

    def _launch(self, knob: Knob, work: Callable[[], object]) -> BoundedCall:
        """Start a write. While it is in `_flying` no other write of it begins, except to put the original back."""
        call = BoundedCall(f"{knob.cgroup}/{knob.key}", work, landed=lambda ended: self._landed(knob, ended))
        self._flying[knob] = call
        return call

    def _landed(self, knob: Knob, call: BoundedCall) -> None:
        """A write came back after its deadline. If the original was put back meanwhile, it is put back once more."""
        with self._lock:
            if self._flying.get(knob) is not call:
                return
            del self._flying[knob]
            if knob in self._abandoned and (entry := self._entry(knob)):
                self._abandoned.discard(knob)
                self._put_back_in_time(entry)

    def _read_back(self, step: _Step, before: str, value: str, error: str | None) -> Outcome:
        knob, change = step.knob, step.change
        if knobs.is_action(knob.key):  # EAGAIN of memory.reclaim: it did what it could
            failed = error is not None and "BlockingIOError" not in error
            return _outcome(change, "failed" if failed else "written", None, error or "")
        try:
            now = spelled(knob.key, self._files.read(knob.cgroup, knob.inode, knob.key))
        except Gone as gone:
            self._note(lambda journal: journal.closed(knob, "gone"))
            return _outcome(change, "gone", step.old, str(gone))
        except OSError as unread:  # the intent stays open: restoring will look again
            return _outcome(change, "failed", step.old, f"reading back: {unread.strerror}")
        if now == value:
            self._note(lambda journal: journal.applied(knob, value))
            entry = self._entry(knob)
            if entry is not None and entry.original == value:
                self._note(lambda journal: journal.closed(knob, "restored"))
            return _outcome(change, "written", step.old, change.reason)
        if now == before:
            self._note(lambda journal: journal.failed(knob, before, error or "no effect"))
        return _outcome(change, "failed", step.old, error or f"reads back {now!r}")

    # -- putting back ------------------------------------------------------------------------------------------------

    def undo(self, plugin: str, cgroup: str, inode: int, key: str, reason: str) -> Outcome:
        """Put the original back now: no rate limit, no minimum step."""
        change = Change(cgroup, inode, key, "", reason)
        with self._lock:
            entry = self._entry(self._knob(cgroup, inode, key))
            outcome = (
                _outcome(change, "unchanged", None, "nothing of ours there")
                if entry is None
                else self._undo(change, entry)
            )
        self.outcomes.add(plugin, outcome)
        return outcome

    def _undo(self, change: Change, entry: Entry) -> Outcome:
        result = self._put_back_in_time(entry)
        states: dict[str, State] = {"restored": "restored", "already": "restored", "gone": "gone", "foreign": "refused"}
        return _outcome(change, states.get(result.how, "failed"), entry.ours[-1], result.detail or change.reason)

    def _put_back_in_time(self, entry: Entry) -> Restored:
        box: list[Restored] = []
        boot = entry.knob.boot
        call = BoundedCall(
            f"restore {entry.knob.cgroup}/{entry.knob.key}", lambda: box.append(put_back(entry, self._files, boot))
        )
        if not call.wait(self._rate.limits.write_deadline_s):
            return Restored(entry, "failed", "the kernel has not answered yet; still in the journal")
        result = box[0] if box else Restored(entry, "failed", call.error or "")
        if entry.knob in self._flying:  # may still land: keep the entry open until then
            self._abandoned.add(entry.knob)
        else:
            self._close_entry(result)
        return result

    def stop(self) -> list[Restored]:
        """Everything back, and nothing more is written. What fails stays in the journal for `carico restore`."""
        with self._lock:
            self._stopped = True
            entries = ordered(self._journal.entries.values()) if self._journal else []
            return [self._put_back_in_time(entry) for entry in entries]

    def original(self, cgroup: str, inode: int, key: str) -> str | None:
        with self._lock:
            entry = self._entry(self._knob(cgroup, inode, key))
            return entry.original if entry else None

    # -- the journal -------------------------------------------------------------------------------------------------

    def _entry(self, knob: Knob) -> Entry | None:
        return self._journal.entries.get(knob) if self._journal else None

    def _close_entry(self, result: Restored) -> None:
        if self._journal is not None:
            close_entry(self._journal, result)

    def _note(self, note: Callable[[Journal], object]) -> None:
        """Records after the fact; without them (full disk) restoring looks at the file itself."""
        assert self._journal is not None
        try:
            note(self._journal)
        except OSError as error:
            log.warning("journal: %s", error)

    def _forget_the_dead(self) -> None:
        """Entries of cgroups that have ended are closed now and then, so that neither journal nor memory grows."""
        if self._journal is None or self._rate.known < 256:
            return
        for entry in list(self._journal.entries.values()):
            if not self._lives(entry.knob):
                self._close_entry(Restored(entry, "gone"))
        self._rate.keep(self._lives)
        self._yielded = {knob: why for knob, why in self._yielded.items() if self._lives(knob)}

    def _lives(self, knob: Knob) -> bool:
        try:
            return self._files.inode(knob.cgroup) == knob.inode
        except Gone:
            return False


class PluginWriter:
    """The writer as one plugin sees it: its name is on everything it does."""

    def __init__(self, plugin: str, writer: CgroupWriter) -> None:
        self._plugin, self._writer = plugin, writer
        self.dry_run = writer.dry_run

    def write(self, changes: Sequence[Change]) -> list[Outcome]:
        return self._writer.write(self._plugin, changes)

    def undo(self, cgroup: str, inode: int, key: str, reason: str) -> Outcome:
        return self._writer.undo(self._plugin, cgroup, inode, key, reason)

    def original(self, cgroup: str, inode: int, key: str) -> str | None:
        return self._writer.original(cgroup, inode, key)


def _outcome(change: Change, state: State, old: str | None, detail: str = "") -> Outcome:
    return Outcome(change, state, old, detail)


def _growing(step: _Step) -> tuple[int, int]:
    return knobs.depth(step.knob.cgroup), int(step.knob.key == "cpu.max.burst")


def _shrinking(step: _Step) -> tuple[int, int]:
    return -knobs.depth(step.knob.cgroup), int(step.knob.key != "cpu.max.burst")
