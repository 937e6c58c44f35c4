"""How far this machine's clock is off, against the `Date` of the API server's answers.

Heartbeats and offers carry the writer's time, and readers compare it with theirs: a node whose clock is behind by more
than the TTL is closed although its agent is well, and one that is ahead stays open after its agent has died.
"""

from email.utils import parsedate_to_datetime

MAX_SKEW_S = 5.0
"""A larger difference is reported [s]."""


def skew_s(sent_s: float, received_s: float, date: str) -> float:
    """How far ahead this clock certainly is [s], negative: behind; 0 if it may be right. `date` has whole seconds, and
    was written some time between `sent_s` and `received_s` (wall clock here).

    >>> date = "Mon, 01 Jan 2024 00:00:10 GMT"
    >>> [skew_s(1704067200 + s, 1704067200.5 + s, date) for s in (10, 10.9, 9.6, 40, -20)]
    [0.0, 0.0, 0.0, 29.0, -29.5]
    >>> skew_s(0, 0, "whenever")
    0.0
    """
    try:
        written_s = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
    min_s, max_s = sent_s - (written_s + 1.0), received_s - written_s
    return min_s if min_s > 0 else min(0.0, max_s)


def describe(skew_s: float) -> str:
    """For conditions and `carico doctor`; empty: the clock is right enough.

    >>> describe(29.4), describe(-7.0), describe(3.0)
    ("the clock here is 29 s ahead of the API server's", "the clock here is 7 s behind the API server's", '')
    """
    if abs(skew_s) <= MAX_SKEW_S:
        return ""
    return f"the clock here is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the API server's"
