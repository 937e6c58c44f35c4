"""What all knobs have in common, and how the commonest values are spelled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

INFINITE = float("inf")

Controller = Literal["memory", "cpuset", "cpu"]


def whole(text: str) -> int:
    """A whole number as the kernel takes it; raises ValueError."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def amount(text: str) -> float:
    """How much "max", a number, or a number per period allows."""
    first, *rest = text.split()
    value = INFINITE if first == "max" else float(first)
    return value / float(rest[0]) if rest else value


@dataclass(frozen=True, slots=True)
class KnobKind:
    """One file of a controller: how its values are spelled and compared."""

    key: str
    controller: Controller
    """Others that own this controller own this file too."""
    canon: Callable[[str, int], str]
    """A value and the page size [bytes] → the value as the kernel prints it; raises ValueError."""
    size: Callable[[str], float] = amount
    """How much a value allows, comparable within one file."""
    union: Callable[[str, str], str] | None = None
    """What allows all that two values allow, where that is neither of them."""
    graded: bool = True
    """A small change of it may be left out."""
    action: bool = False
    """It is done once and leaves nothing to put back."""

    def larger(self, old: str, new: str) -> str:
        if self.union is not None:
            return self.union(old, new)
        return old if self.size(old) >= self.size(new) else new
