"""Bounds of settings; apart, so that sections can live in files of their own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number, both included."""

    least: float
    most: float
