"""Hugging Face Trainer: `Trainer(…, callbacks=[TrainerProgress()])`. Counts optimizer steps; rank 0 reports."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from carico_agent.progress.client import flush, report


class TrainerProgress(TrainerCallback):
    """Reports after each step."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            report(state.global_step, state.max_steps)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        flush()
