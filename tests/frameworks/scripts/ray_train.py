import time

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from carico_agent.progress.callbacks.ray import RayProgress


def train() -> None:
    for epoch in range(8):
        time.sleep(0.6)
        ray.train.report({"epoch": epoch})


ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(callbacks=[RayProgress(8)])).fit()
