"""Samples between the thread that reads the kernel and the event loop that understands them."""

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Generic, TypeVar

from carico_agent.node.measurements import PodTurn
from carico_agent.node.sampling import Grab

T = TypeVar("T")
MAX_WAITING = 600
"""Samples kept while the event loop does not take them: a minute at 10 Hz, about 3 MB of text."""
MIN_S = 0.05
"""Between the first two samples of an update [s]: an agent that starts on a busy node is late with its first tick, and
within 10 ms the kernel's CPU times have not moved."""

Tick = tuple[Grab, int, bool, PodTurn | None]
"""One tick, as it was read: the kernel's texts, Pods counted, whether containers churn, and the counters of those Pods
whose turn it was. A class of its own would cost 3 µs per tick."""


class SampleQueue(Generic[T]):
    """Hands samples from one producer (a thread) to one consumer (the event loop), oldest first, each once.

    Bounded: when it is full the oldest sample is dropped and counted; who must not lose any asks `full` first.

    >>> queue = SampleQueue[int](most=2)
    >>> for n in range(3): queue.put(n)
    >>> list(queue.take()), queue.dropped
    ([1, 2], 1)
    """

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._waiting: deque[T] = deque(maxlen=most)  # its append and popleft are atomic
        self.dropped = 0

    def put(self, sample: T) -> None:
        """Producer."""
        waiting = self._waiting
        if len(waiting) == waiting.maxlen:
            self.dropped += 1
        waiting.append(sample)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) == self._waiting.maxlen

    def take(self) -> Iterator[T]:
        """Consumer: all that waits."""
        while self._waiting:
            yield self._waiting.popleft()


class UpdateClock:
    """When the model should be asked for its answer: once a second, and not for the first sample, which has nothing
    to be compared with, nor for one that follows it too soon. The producer's.

    >>> clock = UpdateClock()
    >>> [clock.due(t) for t in (0.0, 0.1, 0.2, 1.1, 1.2)]
    [False, True, False, True, False]
    """

    def __init__(self, period_s: float = 1.0) -> None:
        self._period_s = period_s
        self.due_s = -inf
        """Before this it is not worth asking."""

    def due(self, now_s: float) -> bool:
        if now_s < self.due_s:
            return False
        is_first = self.due_s == -inf
        self.due_s = now_s + (MIN_S if is_first else self._period_s - 0.01)
        return not is_first
