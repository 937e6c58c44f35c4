import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from carico_agent.progress.callbacks.transformers import TrainerProgress

torch.set_num_threads(1)
config = BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
data = [
    {"input_ids": torch.randint(0, 500, (64,)), "attention_mask": torch.ones(64, dtype=torch.long), "labels": n % 2}
    for n in range(1600)
]
with tempfile.TemporaryDirectory() as folder:
    wanted = TrainingArguments(
        folder, num_train_epochs=2, per_device_train_batch_size=16, use_cpu=True, report_to=[], save_strategy="no"
    )
    Trainer(BertForSequenceClassification(config), wanted, train_dataset=data, callbacks=[TrainerProgress()]).train()
