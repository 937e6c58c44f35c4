"""XGBoost: `xgboost.train(params, data, 500, callbacks=[XGBoostProgress(500)])`, or `XGBClassifier(…, callbacks=[…])`.

XGBoost does not tell its callbacks how many rounds there will be, so the number stands here once more.
"""

from typing import Any

from xgboost.callback import TrainingCallback

from carico_agent.progress.client import flush, report


class XGBoostProgress(TrainingCallback):
    """Reports after each boosting round. `rounds`: num_boost_round, or n_estimators."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, Any]) -> bool:
        report(epoch + 1, self._rounds)
        return False

    def after_training(self, model: Any) -> Any:
        flush()
        return model
