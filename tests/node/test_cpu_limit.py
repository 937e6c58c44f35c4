"""Where the CPU counts as full: by what runs here, or by hand."""

import pytest

from carico_agent.node.measurements import Measurements, PodTurn
from carico_agent.node.pipeline import model_config
from carico_agent.node.pods.pods import Pod
from carico_agent.settings import Settings, override


@pytest.mark.parametrize(
    ("values", "jobs", "services"),
    [
        ({}, 1.0, 0.5),
        ({"cpu_limit": 1.5, "service_cpu_limit": 1.25}, 0.75, 0.625),
        ({"cpu_limit": 0.8}, 0.4, 0.4),
        ({"limits": {"cpu": 0.9, "memory": 0.5}}, 0.9, 0.9),
    ],
)
def test_settings_in_runnable_threads_per_core(values, jobs, services):
    config = model_config(override(Settings(), "model", **values), 4)
    assert (config.limit("cpu"), config.limit("cpu", serves=True)) == (jobs, services)
    assert config.limit("memory", serves=True) == config.limit("memory")


def test_a_pod_of_a_deployment_is_a_service_for_the_model():
    pods = {
        name: Pod(name, name, "shop", inode=1, workload=f"shop/{name}", service=name == "web") for name in ("web", "pi")
    }
    found = Measurements(("cpu", "memory"), 2, 1e9)
    found.take(PodTurn(pods, [], True))
    assert {key: sample.service for key, sample in found._samples.items()} == {"web": True, "pi": False}
