"""Ray Train 2.43 and newer: `RunConfig(callbacks=[RayProgress(epochs)])`. Counts calls of `ray.train.report`.

The callback runs in the controller of the training, one process: the workers are counted once, however many they are.
In the training function itself `track` and `report` work, too; then each worker reports.
"""

from typing import Any

from ray.train import UserCallback

from carico_agent.progress.client import report


class RayProgress(UserCallback):
    """`reports`: how often each worker will call `ray.train.report`; once per epoch is usual."""

    def __init__(self, reports: int) -> None:
        self._reports, self._done = reports, 0

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self._done = min(self._done + 1, self._reports)
        report(self._done, self._reports)
