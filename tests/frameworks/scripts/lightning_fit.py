import lightning
import torch

from carico_agent.progress.callbacks.lightning import LightningProgress


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))

    def training_step(self, batch, at):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


torch.set_num_threads(1)
x = torch.randn(8192, 256)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=64)
trainer = lightning.Trainer(
    max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[LightningProgress()]
)
trainer.fit(Model(), loader)
