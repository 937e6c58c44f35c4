"""How the Vertical Pod Autoscaler (VPA) collects samples and what it makes of them.

CPU: one sample a minute with weight 0.1. Memory: only the highest working set of each container and 24 hours, with
weight 1, stamped at the window's end; a higher value in the same window takes the place of the old one. An OOM kill
counts as a peak of max(used + 100 MiB, 1.2 · used), because the real demand was cut off at `used`.

Source: the VPA recommender; described in "Analyse von Verfahren zur Optimierung des Container-Schedulings in
Kubernetes", section 5.2, equations 5.1 to 5.6. Its printed (5.1) lost a plus sign; VPA multiplies the lower bound by
(1 + 0.001/c)⁻².
"""

import math
from dataclasses import dataclass

from carico_agent.recommend.histogram import DAY_S, DecayingHistogram

CPU_WEIGHT = 0.1
MEMORY_WEIGHT = 1.0
OOM_MIN_BUMP_BYTES = 100 * 2**20
OOM_BUMP_RATIO = 1.2
EXPIRY_S = 8 * DAY_S
"""A container that was not seen for so long is forgotten."""
MINUTES_PER_DAY = 1440.0
LOWER_SHARE, UPPER_SHARE = 0.5, 0.95


@dataclass(slots=True)
class MemoryPeaks:
    """The peak of the present 24-hour window of one container, and where it stands in the histogram."""

    interval_s: float = DAY_S
    window_end_s: float | None = None
    usage_peak_bytes: float = 0.0
    oom_peak_bytes: float = 0.0

    def usage(self, histogram: DecayingHistogram, t_s: float, used_bytes: float) -> None:
        """One working set at `t_s`."""
        self._peak(histogram, t_s, used_bytes, False)

    def oom(self, histogram: DecayingHistogram, t_s: float, request_bytes: float = 0.0) -> float:
        """An OOM kill: the demand it stands for [bytes]. Peaks made by OOM kills are left out of `used`, so that
        several in a row do not lift each other."""
        needed = oom_bump(max(request_bytes, self.usage_peak_bytes))
        self._peak(histogram, t_s, needed, True)
        return needed

    def _peak(self, histogram: DecayingHistogram, t_s: float, value: float, oom: bool) -> None:
        end_s = t_s if self.window_end_s is None else self.window_end_s
        old = max(self.usage_peak_bytes, self.oom_peak_bytes)
        if self.window_end_s is None or t_s >= end_s:
            end_s += math.floor((t_s - end_s) / self.interval_s) * self.interval_s + self.interval_s
            self.window_end_s, old = end_s, 0.0
            self.usage_peak_bytes = self.oom_peak_bytes = 0.0
        if value <= old:
            return
        if old:
            histogram.subtract(old, MEMORY_WEIGHT, end_s)
        histogram.add(value, MEMORY_WEIGHT, end_s)
        if oom:
            self.oom_peak_bytes = value
        else:
            self.usage_peak_bytes = value


def oom_bump(used_bytes: float) -> float:
    """What is assumed to have been needed when `used_bytes` were not enough (5.6).

    >>> oom_bump(1e9), oom_bump(0.0)
    (1200000000.0, 104857600.0)
    """
    return max(used_bytes + OOM_MIN_BUMP_BYTES, OOM_BUMP_RATIO * used_bytes)


def confidence(first_s: float, last_s: float, samples: float) -> float:
    """Days of history, or as many days as there are minutely samples, whichever is less.

    >>> confidence(0.0, 2 * 86400.0, 1440)
    1.0
    """
    return max(min((last_s - first_s) / DAY_S, samples / MINUTES_PER_DAY), 0.0)


def lower_factor(days: float) -> float:
    """Multiplies the lower bound; 0 without any history.

    >>> round(lower_factor(5 / 1440), 4), round(lower_factor(30 / 1440), 4)
    (0.6028, 0.9105)
    """
    return float((1.0 + 0.001 / days) ** -2.0) if days > 0 else 0.0


def upper_factor(days: float) -> float:
    """Multiplies the upper bound; infinite without any history.

    >>> upper_factor(0.5), round(upper_factor(7.0), 3)
    (3.0, 1.143)
    """
    return 1.0 + 1.0 / days if days > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Bounds:
    """Target and the interval in which a present request may stay."""

    target: float
    lower: float
    upper: float


def bounds(histogram: DecayingHistogram, days: float, share: float = 0.9, margin: float = 0.15) -> Bounds:
    """(5.1) to (5.3): percentiles p50, `share` and p95, each with the margin, widened where history is short."""
    factor = 1.0 + margin
    target = histogram.percentile(share) * factor
    lower = histogram.percentile(min(LOWER_SHARE, share)) * factor * lower_factor(days)
    upper = histogram.percentile(max(UPPER_SHARE, share)) * factor * upper_factor(days)
    return Bounds(target, lower, upper)
