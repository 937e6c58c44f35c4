"""What one simulated run of a schedule showed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacerRun:
    mean_s: float
    """Completion time of a job, from its arrival."""
    makespan_s: float
    contention: tuple[float, ...]
    """As it came true, per worker."""
    times_s: tuple[float, ...] = ()
    """Completion time of each job."""
