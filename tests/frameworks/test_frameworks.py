"""Each framework trains for seconds with its callback and reports to a real agent; no stand-ins.

The frameworks live in a venv outside of the tree: $CARICO_FRAMEWORKS, or what `make test-frameworks-small` and `make
test-frameworks` keep in the cache. A framework that is not installed is skipped, unless $CARICO_FRAMEWORKS_WANTED names
it: then it is missing.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carico_agent.client import AgentClient
from tests.conftest import TREE, AgentProcess

SCRIPTS = Path(__file__).parent / "scripts"
CACHE = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache/carico") / "frameworks"
VENV = Path(os.environ.get("CARICO_FRAMEWORKS") or CACHE / "small")
LIMIT_S = 180.0


@dataclass(frozen=True)
class Training:
    script: str
    module: str
    """What it needs."""
    total: int
    runner: tuple[str, ...] = ()


TRAININGS = (
    Training("tqdm_dropin", "tqdm", 4),
    Training("tqdm_unchanged", "tqdm", 40, ("-m", "carico_agent.progress")),
    Training("sklearn_search", "sklearn", 13),
    Training("sklearn_boosting", "sklearn", 60),
    Training("xgboost_train", "xgboost", 25),
    Training("lightgbm_train", "lightgbm", 150),
    Training("keras_fit", "keras", 1252),
    Training("ray_train", "ray", 8),
    Training("torch_loop", "torch", 1024),
    Training("lightning_fit", "lightning", 640),
    Training("transformers_train", "transformers", 200),
    Training("transformers_unchanged", "transformers", 200, ("-m", "carico_agent.progress")),
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentClient]:
    process = AgentProcess(tmp_path_factory.mktemp("agent"), "--quiet")
    yield process.wait()
    process.stop()


def has(module: str) -> bool:
    """Whether the venv has it, without importing it."""
    return any(VENV.glob(f"lib/python*/site-packages/{module}/__init__.py"))


@pytest.mark.parametrize("training", TRAININGS, ids=[one.script for one in TRAININGS])
def test_a_training_is_followed_from_its_first_steps_to_its_end(
    training: Training, agent: AgentClient, tmp_path: Path
) -> None:
    if not has(training.module):
        assert training.module not in os.environ.get("CARICO_FRAMEWORKS_WANTED", "").split()
        pytest.skip(f"no {training.module} in {VENV}; `make test-frameworks` installs it")
    before = {job["name"] for job in jobs(agent)}
    environment = {
        **os.environ,
        "PYTHONPATH": str(TREE),
        "CARICO_PROGRESS_SOCKET": agent.request("GET", "/v1/progress")["socket"],
        "HOME": str(tmp_path),  # Ray leaves a token and results there
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_TRAIN_V2_ENABLED": "1",
    }
    command = [str(VENV / "bin/python"), *training.runner, str(SCRIPTS / f"{training.script}.py")]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=tmp_path)
    seen, deadline_s = list[dict[str, Any]](), time.monotonic() + LIMIT_S
    try:
        while job.poll() is None and time.monotonic() < deadline_s:
            seen += [one for one in jobs(agent) if one["name"] not in before]
            time.sleep(0.1)
        assert job.wait(5) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        job.kill()
        job.wait()
    seen += [one for one in jobs(agent) if one["name"] not in before]
    text = (tmp_path / "log").read_text(errors="replace")
    assert "carico's agent refuses" not in text
    assert len({one["name"] for one in seen}) == 1, "one training is one entry"
    assert {one["total"] for one in seen} == {training.total}
    assert any(0 < one["done"] < one["total"] for one in seen), "it was seen on its way"
    assert (seen[-1]["done"], seen[-1]["runs"]) == (training.total, 1)


def jobs(agent: AgentClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.request("GET", "/v1/progress")["jobs"]
    return found


def test_every_callback_is_in_the_docs_and_trained_with() -> None:
    modules = {path.stem for path in (TREE / "carico_agent/progress/callbacks").glob("[a-z]*.py")}
    scripts = "\n".join(path.read_text() for path in SCRIPTS.glob("*.py"))
    docs = (TREE / "docs/progress.md").read_text()
    for text in (scripts, docs):
        assert set(re.findall(r"carico_agent\.progress\.callbacks\.(\w+) import", text)) == modules
