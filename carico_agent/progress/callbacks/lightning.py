"""PyTorch Lightning 2: `Trainer(…, callbacks=[LightningProgress()])`. Counts optimizer steps; rank 0 reports."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from carico_agent.progress.client import flush, report


class LightningProgress(Callback):
    """Reports after each batch; nothing where the trainer has no end (max_steps=-1 and no max_epochs)."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_global_zero:
            report(trainer.global_step, trainer.estimated_stepping_batches)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        flush()
