"""Dynamic exponential moving average: calm under spikes, quick once a change has proven to last."""

from collections.abc import Mapping, Sequence
from math import exp, nan
from typing import Any


class DynamicEma:
    """One smoothed value per channel; a channel never seen is NaN, an unknown sample keeps the last value.

    `slow_s` and `fast_s` are time constants [s]; a deviation beyond `band` that keeps its direction for longer than
    `switch_s` switches the channel to fast smoothing until the direction turns. (Ending it at the band's edge would
    leave a bias of up to `band` for seconds.) Smoothing uses the time between samples, so a missed tick costs nothing
    but resolution.

    >>> ema = DynamicEma(1, slow_s=1.0, fast_s=0.1, switch_s=0.3, band=0.03)
    >>> for _ in range(10): y = ema.update(0.1, [0.2])
    >>> spike = [ema.update(0.1, [1.0])[0] for _ in range(2)]       # 200 ms: a container starts
    >>> step = [ema.update(0.1, [0.8])[0] for _ in range(15)]       # a change that stays
    >>> round(spike[-1], 2), round(step[-1], 2)
    (0.35, 0.8)

    Source: *CARICO* (dissertation), 4.2.2.
    """

    def __init__(self, channels: int, slow_s: float, fast_s: float, switch_s: float, band: float) -> None:
        self.values = [nan] * channels
        self._lasting_s = [0.0] * channels  # signed: how long the deviation has kept its direction
        self._slow_s, self._fast_s = slow_s, fast_s
        self._switch_s, self._band = switch_s, band

    def forget(self) -> None:
        """Begin anew: the next sample is taken as it is."""
        self.values = [nan] * len(self.values)
        self._lasting_s = [0.0] * len(self.values)

    def update(self, elapsed_s: float, sample: Sequence[float]) -> list[float]:
        """Take one sample `elapsed_s` after the last; returns the smoothed values (the live list, do not change it)."""
        slow = 1 - exp(-elapsed_s / self._slow_s)
        for i, x in enumerate(sample):
            if x != x:
                continue
            value = self.values[i]
            if value != value:
                self.values[i] = x
                continue
            deviation = x - value
            lasting_s = self._lasting(self._lasting_s[i], deviation, elapsed_s)
            self._lasting_s[i] = lasting_s
            # s ← s + α·(x − s), α = 1 − exp(−Δt/τ)
            proven = abs(lasting_s) > self._switch_s + 1e-9
            self.values[i] = value + (1 - exp(-elapsed_s / self._fast_s) if proven else slow) * deviation
        return self.values

    def _lasting(self, lasting_s: float, deviation: float, elapsed_s: float) -> float:
        signed_s = elapsed_s if deviation > 0 else -elapsed_s
        if lasting_s * signed_s > 0 and (abs(lasting_s) > self._switch_s or abs(deviation) > self._band):
            return lasting_s + signed_s
        return signed_s if abs(deviation) > self._band else 0.0

    def state(self) -> dict[str, Any]:
        return {"values": [None if v != v else v for v in self.values], "lasting_s": list(self._lasting_s)}

    def restore(self, state: Mapping[str, Any]) -> None:
        if len(state["values"]) != len(self.values):
            raise ValueError(f"{len(state['values'])} smoothed values saved, {len(self.values)} expected")
        self.values = [nan if v is None else float(v) for v in state["values"]]
        self._lasting_s = [float(v) for v in state["lasting_s"]]
