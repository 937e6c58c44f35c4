"""How much a cgroup is held up: by its quota where it has one, else by others (CPU pressure)."""

from dataclasses import dataclass

from carico_agent.plugin_api import View, parse_flat, parse_stall


@dataclass(frozen=True, slots=True)
class ComponentCounters:
    """As the kernel counts; None is unknown."""

    now_s: float
    periods: int | None
    throttled: int | None
    waited_usec: int | None


def read_counters(view: View, cgroup: str) -> ComponentCounters:
    stat = parse_flat(view.read(cgroup, "cpu.stat"))
    stall = parse_stall(view.read(cgroup, "cpu.pressure"))
    return ComponentCounters(
        view.now_s, stat.get("nr_periods"), stat.get("nr_throttled"), stall.some_usec if stall else None
    )


def held_up(old: ComponentCounters | None, new: ComponentCounters) -> float | None:
    """τ of *MerKury* (throttled over all periods) with a quota; without one, which is the rule for a control plane, the
    share of the time in which some task of it waited for a CPU. None: unknown, or a counter went backwards.

    >>> held_up(ComponentCounters(0, 100, 10, 0), ComponentCounters(60, 200, 80, 0))
    0.7
    >>> held_up(ComponentCounters(0, 0, 0, 0), ComponentCounters(60, 0, 0, 30_000_000))
    0.5
    """
    if old is None or new.now_s <= old.now_s:
        return None
    if None not in (old.periods, new.periods, old.throttled, new.throttled):
        assert old.periods is not None and new.periods is not None
        assert old.throttled is not None and new.throttled is not None
        if new.periods < old.periods or new.throttled < old.throttled:
            return None
        if new.periods > old.periods:
            return (new.throttled - old.throttled) / (new.periods - old.periods)
    if old.waited_usec is None or new.waited_usec is None or new.waited_usec < old.waited_usec:
        return None
    return min(1.0, (new.waited_usec - old.waited_usec) / 1e6 / (new.now_s - old.now_s))
