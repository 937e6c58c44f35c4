"""LightGBM: `lightgbm.train(…, callbacks=[progress])`, or `LGBMClassifier().fit(x, y, callbacks=[progress])`."""

from typing import Any

from carico_agent.progress.client import report


def progress(env: Any) -> None:
    """Called after each boosting round with LightGBM's CallbackEnv. The last round is sent at once."""
    report(env.iteration - env.begin_iteration + 1, env.end_iteration - env.begin_iteration)
