"""Keras 3, any backend: `model.fit(…, callbacks=[KerasProgress()])`. Counts batches, or epochs where their number is
unknown before the first one has ended."""

from typing import Any

from keras.callbacks import Callback

from carico_agent.progress.client import flush, report


class KerasProgress(Callback):
    """Reports after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if steps := self.params.get("steps"):
            report(self._epoch * steps + batch + 1, self.params["epochs"] * steps)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self.params.get("steps"):
            report(epoch + 1, self.params["epochs"])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        flush()
