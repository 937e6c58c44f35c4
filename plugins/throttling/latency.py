"""What a CPU quota does to the time of a request. Pure arithmetic; times in milliseconds.

Source: "Analyse von Verfahren zur Optimierung des Container-Schedulings in Kubernetes", section 1.4, equations 1.19 and
1.20, and section 5.4 with figure 5.15.
"""

import math


def response_ms(cpu_ms: float, quota_ms: float | None, period_ms: float = 100.0, parallel: int = 1) -> float:
    """Time until each of `parallel` requests is done, if each needs `cpu_ms` of CPU and all start with a period.

    quota_ms: CPU time the group may use per period, None = no quota. parallel: requests at the same time, each on a
    CPU of its own. The waiting is what the quota adds; contention with other groups is not in it.

    >>> response_ms(500, 50)
    950.0
    >>> response_ms(500, 50, parallel=2)
    1925.0
    >>> response_ms(500, 200, parallel=2)
    500.0
    """
    n = max(parallel, 1)
    if quota_ms is None or quota_ms >= n * period_ms:
        return float(cpu_ms)
    # (1.20) t_w = t_c + (⌈t_c·n / t_q⌉ − 1) · (t_p − t_q/n);   n = 1 is (1.19)
    throttled_periods = max(math.ceil(cpu_ms * n / quota_ms - 1e-9) - 1, 0)
    return cpu_ms + throttled_periods * (period_ms - quota_ms / n)


def serial_ms(cpu_ms: float, quota_ms: float | None, period_ms: float = 100.0, requests: int = 2) -> list[float]:
    """When each of `requests` is done if they come at the same time and are worked on one after the other.

    Figure 5.15: two requests of 500 ms under 50/100 ms. One after the other the last one is hardly later than both are
    side by side, and the first one much sooner: with several threads the quota is spent early in each period, and
    no thread works in the rest of it.

    >>> serial_ms(500, 50), response_ms(500, 50, parallel=2)
    ([950.0, 1950.0], 1925.0)
    """
    return [response_ms(cpu_ms * done, quota_ms, period_ms) for done in range(1, max(requests, 1) + 1)]


def enough_cores(cpu_ms: float | None, period_ms: float, parallel: int) -> float:
    """The smallest limit [cores] at which such requests are not throttled at all.

    >>> enough_cores(50, 100, 2), enough_cores(500, 100, 2), enough_cores(None, 100, 2)
    (1.0, 2.0, 2.0)
    """
    # No throttling in (1.20): ⌈t_c·n / t_q⌉ = 1, so t_q ≥ t_c·n; or t_q ≥ n·t_p, all threads all the time.
    share = 1.0 if cpu_ms is None else min(cpu_ms / period_ms, 1.0)
    return max(parallel, 1) * share
