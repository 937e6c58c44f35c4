"""scikit-learn: `GridSearchCV(…).set_callbacks(SearchProgress())` (1.9 and newer), `model.fit(x, y, monitor=monitor)`
for gradient boosting (any version). Loops over `partial_fit` use `track`.

Which estimators take callbacks is scikit-learn's choice: in 1.9 the searches, Pipeline and LogisticRegression.

Why a file: a search with n_jobs=2 ends its tasks in other processes, which have a copy of this object. Each writes one
number for an ended task; a thread of the process that called `fit` counts them and reports. That process is one entry.
"""

import os
import struct
import tempfile
import threading
from typing import Any

from carico_agent.progress.client import flush, report

LOOK_S = 0.5
_ENDED = struct.Struct("<q")


def monitor(iteration: int, estimator: Any, local: dict[str, Any]) -> bool:
    """`fit(…, monitor=monitor)` of GradientBoostingClassifier and GradientBoostingRegressor."""
    report(iteration + 1, estimator.n_estimators)
    return False


class SearchProgress:
    """Reports the ended tasks of one `fit`: candidates times splits of a search, iterations of a solver."""

    max_propagation_depth = 0  # of sub-estimators nothing is counted

    def __init__(self) -> None:
        self._file = ""

    def setup(self, estimator: Any, context: Any) -> None:
        descriptor, self._file = tempfile.mkstemp(prefix="carico-progress-")
        os.close(descriptor)
        thread = _Counting(self._file)
        _running[self._file] = thread
        thread.start()

    def teardown(self, estimator: Any, context: Any) -> None:
        if (thread := _running.pop(self._file, None)) is not None:
            thread.end()
            os.unlink(self._file)

    def on_fit_task_begin(self, estimator: Any, context: Any, **more: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any, **more: Any) -> None:
        if context.max_subtasks == 0:
            # one write of eight bytes at the end of the file: no two processes mix
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(file, _ENDED.pack(leaves(context)))
            finally:
                os.close(file)


def leaves(context: Any) -> int:
    """How many tasks without subtasks there will be, as seen from one of them: its siblings, and one for each sibling
    of its parents. A search over 2 candidates and 2 splits has 4, and the fit with the best parameters: 5."""
    found, one = 1, context.parent
    while one is not None:
        found += max(1, one.max_subtasks or 1) - 1
        one = one.parent
    return found


class _Counting(threading.Thread):
    """Reports what is in the file, until it is ended."""

    def __init__(self, file: str) -> None:
        super().__init__(daemon=True)
        self._file, self._ended = file, threading.Event()

    def run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._report()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._report()
        flush()

    def _report(self) -> None:
        with open(self._file, "rb") as file:
            numbers = [number for (number,) in _ENDED.iter_unpack(file.read())]
        if numbers:
            report(min(len(numbers), max(numbers)), max(numbers))


_running: dict[str, _Counting] = {}
"""By file. Not in the callback itself, which is copied to other processes: threads cannot be."""
