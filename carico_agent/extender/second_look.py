"""Filter, asked twice: a refusal of every node is looked at again before kube-scheduler hears it.

kube-scheduler (1.30 and newer) asks within a millisecond of the Node's event that made room. Our own watch may be some
milliseconds behind. A Pod that is refused then waits for the next event, which may be five minutes.

Why for 50 ms, and why not longer: kube-scheduler asks about one Pod after another, so all others wait meanwhile. The
watch was behind by more than 25 ms once in 173 rises; those Pods `wake_scheduler.py` finds. All waiting together takes
a twentieth of the time at most, however many Pods wait.
"""

import time

from carico_agent.extender.candidates import Candidates, Filtered
from carico_agent.extender.cluster import Cluster
from carico_agent.extender.gangs import GangPlaces, gang_of
from carico_agent.extender.setup_warnings import SetupWarnings
from carico_agent.extender.wake_scheduler import WakeScheduler
from carico_agent.lib.kube.client import Object

LOOK_AGAIN_S = 0.05
"""For how long one answer waits for news [s]."""

BUDGET_RATIO, BUDGET_S = 0.05, 0.1
"""The part of the time that is spent waiting at most, and how much of it may come at once [s]."""


class SecondLook:
    """Answers filter. `waited_s`: how long its answers have waited so far, all together."""

    def __init__(self, cluster: Cluster, candidates: Candidates, wake: WakeScheduler, warnings: SetupWarnings) -> None:
        self._cluster, self._candidates, self._wake, self._warnings = cluster, candidates, wake, warnings
        self._gangs = GangPlaces(cluster)
        self._left_s, self._filled_s = BUDGET_S, time.monotonic()
        self.waited_s = 0.0

    async def filter(self, arguments: Object) -> Object | bytes:
        """ExtenderArgs → ExtenderFilterResult."""
        gang = gang_of(pod := arguments.get("Pod") or {})
        if gang:
            self._gangs.release(gang, str((pod.get("metadata") or {}).get("uid", "")))
        found = self._candidates.judge(arguments)
        self._warnings.asked(found.pod.uid, found.pod.holds)
        if found.refused is not None:
            found = await self._check_again(arguments, found)
        if found.refused is None:
            self._wake.passed(found.pod.uid)
        else:
            self._wake.refused(found.refused)
        if gang and found.chosen:
            self._gangs.hold(gang, found.pod, found.chosen)
        elif gang and found.refused is not None:
            if note := self._gangs.refusal_note(gang):
                found = self._candidates.judge(arguments, note)
            self._gangs.release_all(gang)
        return found.answer

    async def _check_again(self, arguments: Object, found: Filtered) -> Filtered:
        began_s = time.monotonic()
        end_s = began_s + min(LOOK_AGAIN_S, self._budget_s(began_s))
        try:
            while found.refused is not None and (left_s := end_s - time.monotonic()) > 0:
                if not await self._cluster.news(left_s):
                    break
                found = self._candidates.judge(arguments)
        finally:
            took_s = time.monotonic() - began_s
            self._left_s -= took_s
            self.waited_s += took_s
        return found

    def _budget_s(self, now_s: float) -> float:
        self._left_s = min(BUDGET_S, self._left_s + BUDGET_RATIO * (now_s - self._filled_s))
        self._filled_s = now_s
        return max(0.0, self._left_s)
