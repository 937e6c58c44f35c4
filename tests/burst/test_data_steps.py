"""The steps that fetch and publish models, as a Job's Pod runs them: a folder, a small S3 store and a real one."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from carico_agent.burst import data_step
from carico_agent.burst.registry import FileStore, Registry, open_registry
from carico_agent.burst.s3 import S3Store, StoreError
from lab.support.kube_versions import part
from lab.support.waiting import free_port, wait_for
from tests.burst.s3_server import KEY, SECRET, SmallS3
from tests.conftest import TREE

ENVIRON = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture
def small() -> Iterator[SmallS3]:
    server = SmallS3(page=3)
    yield server
    server.stop()


@pytest.fixture
def versity(tmp_path: Path) -> Iterator[str]:
    """A real S3-compatible store on loopback; skipped where it is not built."""
    program = part("versitygw").bin / "versitygw"
    if not os.access(program, os.X_OK):
        pytest.skip(f"no {program}: python -m lab.support.kube_build versitygw")
    port, root = free_port(), tmp_path / "s3"
    (root / "models").mkdir(parents=True)
    access = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [str(program), "--port", f"127.0.0.1:{port}", "posix", str(root)]
    process = subprocess.Popen(command, env={**os.environ, **access}, stdout=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, "the store listens", 30)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["file", "small", "versity"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The arguments that name a registry."""
    if request.param == "file":
        (tmp_path / "store").mkdir()
        return ["--registry", f"file://{tmp_path}/store"]
    found = request.getfixturevalue(request.param)
    return ["--registry", "s3://models/team", "--endpoint", found.endpoint if request.param == "small" else found]


def step(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """The program, as the container of a step starts it."""
    command = [sys.executable, "-m", "carico_agent.burst.data_step", *arguments]
    env = {**os.environ, **ENVIRON, **environ, "PYTHONPATH": str(TREE)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_what_one_step_publishes_another_fetches(store: list[str], tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights 1")
    common = [*store, "--namespace", "shop"]
    for text in (b"weights 1", b"weights 2"):
        (tmp_path / "model").write_bytes(text)
        done = step("publish", *common, "--job", "train", f"arpu={tmp_path}/model")
        assert done.returncode == 0, done.stderr
        time.sleep(0.002)
    first = step("fetch", *common, "--to", str(tmp_path / "data"), "arpu@latest")
    assert first.returncode == 0, first.stderr
    assert (tmp_path / "data/arpu").read_bytes() == b"weights 2"
    other = step("fetch", *store, "--namespace", "bank", "--to", str(tmp_path / "bank"), "arpu@latest")
    assert other.returncode == 1
    assert "no model arpu is published" in other.stderr


def test_a_folder_is_published_whole(store: list[str], tmp_path: Path) -> None:
    (tmp_path / "model/part").mkdir(parents=True)
    (tmp_path / "model/part/a").write_text("a")
    common = [*store, "--namespace", "shop"]
    assert step("publish", *common, f"big={tmp_path}/model").returncode == 0
    assert step("fetch", *common, "--to", str(tmp_path / "data"), "big@latest").returncode == 0
    assert (tmp_path / "data/big/part/a").read_text() == "a"


def test_a_wrong_key_is_refused_and_said(small: SmallS3, tmp_path: Path) -> None:
    arguments = ["--registry", "s3://models", "--endpoint", small.endpoint, "--namespace", "shop"]
    done = step("fetch", *arguments, "--to", str(tmp_path), "arpu@latest", AWS_SECRET_ACCESS_KEY="wrong")
    assert done.returncode == 1
    assert "403" in done.stderr
    assert "SignatureDoesNotMatch" in done.stderr


def test_versions_over_many_pages(small: SmallS3, tmp_path: Path) -> None:
    registry = Registry(S3Store("models", small.endpoint, environ=ENVIRON), "team", "shop")
    (tmp_path / "m").write_text("m")
    made = [registry.publish("arpu", tmp_path / "m", "j", tmp_path).version for _ in range(8)]
    assert registry.versions("arpu") == sorted(made)
    assert registry.find("arpu").version == max(made)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "store").mkdir()
    return open_registry(f"file://{tmp_path}/store", "shop")


def published(registry: Registry, tmp_path: Path, text: str = "weights") -> data_step.ModelRecord:
    (tmp_path / "made").write_text(text)
    return data_step.publish(registry, f"arpu={tmp_path}/made", "train")


def test_a_pod_on_the_same_node_fetches_nothing_again(small: SmallS3, tmp_path: Path) -> None:
    registry = Registry(S3Store("models", small.endpoint, environ=ENVIRON), "", "shop")
    record, cache = published(registry, tmp_path), tmp_path / "cache"
    for pod in ("one", "two"):
        data_step.fetch(registry, "arpu@latest", tmp_path / pod, cache, {})
        assert (tmp_path / pod / "arpu").read_text() == "weights"
    assert [key for key in small.downloads if key.endswith(".model")] == [f"shop/arpu/{record.version}.model"]


def test_a_false_model_in_the_cache_is_not_taken(registry: Registry, tmp_path: Path) -> None:
    record, cache = published(registry, tmp_path), tmp_path / "cache"
    cache.mkdir()
    (cache / record.sha256).write_text("poison!")  # as long as the model
    data_step.fetch(registry, "arpu@latest", tmp_path / "data", cache, {})
    assert (tmp_path / "data/arpu").read_text() == "weights"
    assert (cache / record.sha256).read_text() == "weights"


def test_a_full_cache_loses_what_was_not_used_longest(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_step, "CACHE_BYTES", 12)
    cache, records = tmp_path / "cache", []
    for number in range(3):
        records.append(published(registry, tmp_path, f"model{number}"))
        data_step.fetch(registry, "arpu@latest", tmp_path / "data", cache, {})
        os.utime(cache / records[-1].sha256, (number, number))
        time.sleep(0.002)
    assert sorted(one.name for one in cache.iterdir()) == sorted(one.sha256 for one in records[1:])


def test_the_url_that_burst_resolved_decides(registry: Registry, tmp_path: Path) -> None:
    first = published(registry, tmp_path, "old")
    time.sleep(0.002)
    published(registry, tmp_path, "new")
    environ = {"CARICO_DATA_ARPU_URL": first.url}
    assert data_step.fetch(registry, "arpu@latest", tmp_path / "data", None, environ).version == first.version
    elsewhere = {"CARICO_DATA_ARPU_URL": first.url.replace("/shop/", "/bank/")}
    with pytest.raises(ValueError, match="which is not in"):
        data_step.fetch(registry, "arpu@latest", tmp_path / "data", None, elsewhere)


def test_a_model_that_changed_in_the_store_is_refused(registry: Registry, tmp_path: Path) -> None:
    record = published(registry, tmp_path)
    Path(record.url.removeprefix("file://")).write_text("changed")
    with pytest.raises(StoreError, match="checksum"):
        data_step.fetch(registry, "arpu@latest", tmp_path / "data", None, {})


def test_a_model_without_its_record_does_not_exist(registry: Registry, tmp_path: Path) -> None:
    """Killed between the model and its record: the version before is the newest."""
    record = published(registry, tmp_path)
    place = Path(record.url.removeprefix("file://"))
    place.with_name("99991231T235959000Z-00000000.model").write_text("half")
    assert registry.find("arpu") == record


def test_a_record_of_another_model_is_refused(registry: Registry, tmp_path: Path) -> None:
    record = published(registry, tmp_path)
    place = Path(record.url.removeprefix("file://")).with_suffix(".json")
    place.write_text(json.dumps({**json.loads(place.read_text()), "name": "other"}))
    with pytest.raises(ValueError, match="is of other@"):
        registry.find("arpu")


@pytest.mark.parametrize("name", ["../bank/arpu", "a/b", "", "A", "a" * 64])
def test_a_name_leads_nowhere_else(registry: Registry, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a model"):
        registry.find(name)


def test_a_job_that_left_no_model_fails_its_step(registry: Registry, tmp_path: Path) -> None:
    assert isinstance(registry.store, FileStore)
    done = step("publish", "--registry", registry.store.url, "--namespace", "shop", f"arpu={tmp_path}/nothing")
    assert done.returncode == 1
    assert "left no model arpu" in done.stderr
