"""How much of the CPU pressure is contention: tasks that wait because no CPU is free.

The kernel counts a task that its own quota stopped as waiting, so one throttled container lifts the pressure of an
idle node to .99. But while a CPU idles no thread waits for a CPU except because of a quota. Contention therefore lasts
at most as long as *all* CPUs are busy, and that is bounded by what utilisation allows:

    contention = min(pressure, u^√(2(c+1)))         u utilisation, c CPUs

The bound is the share of time in which a thread waits in a queue with c servers and random arrivals, M/M/c
(P(N > c) ≈ u^√(2(c+1)), after Sakasegawa 1977; exact for c = 1, at most .008 too low up to 64 CPUs).
It rises with u, is 1 at u = 1, and knows that many CPUs even out: at u = .75 it is .56 on one CPU,
.40 on four (the exact value is .38), .04 on 64.

Why a bound and not a weight (pressure × u^p): a weight also shrinks pressure that is real. Four CPUs at .75 with
random work have a true pressure of .38; the bound leaves it whole, the weight u³ makes it .16, a smooth minimum
(Hamacher) .24. The bound is continuous and monotone in both arguments; its kink is harmless, the filter follows.
Why not u^c, the chance that c independent CPUs are all busy: .275² leaves an error of .035 in the table below, and
on 64 CPUs it would deny all pressure at u = .95 (.04, where a random queue has about .56).
Why not procs_running, which leaves throttled tasks out: one instant of 100 ms is 0 or 1, noise of the worst workload.

Measured on two CPUs: throttled rows .479 .382 .632 become .039 .159 .158, truth ≈ .04 .14 .14; the
unthrottled table keeps its values (only the idle row moves, from .008 to .005). What remains: on a node that is
*both* busy and full of throttled containers the bound leaves up to u^√(2(c+1))/2 too much
(.20 at u = .75 on four CPUs). That errs towards "full".
"""


def contention(pressure: float, utilisation: float, cores: int) -> float:
    """The part of `pressure` (some, ratio) that can be contention at this utilisation (ratio) on `cores` CPUs.

    >>> round(contention(0.989, 0.274, cores=2), 3), contention(0.554, 0.999, cores=2)
    (0.042, 0.554)
    """
    bound: float = utilisation ** (2.0 * (cores + 1)) ** 0.5
    return pressure if pressure <= bound else bound  # unknown utilisation: the bound, NaN, and so the answer


def contention_of_runnable(runnable: int, cores: int) -> float:
    """A substitute where the kernel has no PSI: (runnable − cores) / cores, the reader itself not counted.

    Utilisation alone would end at y = ½ and hide every overload. This has the shape of the measured table: with n busy
    loops on two CPUs it gives 0 0 0 .5 1 1 for n = 0 1 2 3 4 5, pressure was .01 .00 .02 .55 1 1. It is one
    instant and not a mean over the interval, so it is noisier; the filter behind has to do more.

    >>> [contention_of_runnable(n + 1, cores=2) for n in range(6)]
    [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]
    """
    return min(max((runnable - 1 - cores) / cores, 0.0), 1.0)
