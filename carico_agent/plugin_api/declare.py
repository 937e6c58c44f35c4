"""Bounds of settings, the agent's and plugins' alike."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number, both included: `Annotated[float, Range(0, 1)]`."""

    least: float
    most: float
