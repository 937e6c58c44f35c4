"""docs/burst.md, followed by a new user on two real control planes: its files, its commands, in its order."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from lab.support import TREE
from lab.support.burst_planes import BurstPlane
from lab.support.burst_scene import Scene
from lab.support.waiting import wait_for
from tests.burst.test_daemon import all_done

PAGE = (TREE / "docs/burst.md").read_text()
FILES = re.findall(r"`(prices\.toml|burst\.toml|job\.yaml)`[^`]*?\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def contexts(planes: tuple[BurstPlane, BurstPlane]) -> dict[str, Any]:
    """One kubeconfig with the contexts `home` and `cloud`."""
    parts: dict[str, list[Any]] = {"clusters": [], "users": [], "contexts": []}
    for name, plane in zip(("home", "cloud"), planes, strict=True):
        one = json.loads(plane.kubeconfig("admin-token").read_text())
        parts["clusters"].append({**one["clusters"][0], "name": name})
        parts["users"].append({**one["users"][0], "name": name})
        parts["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    return {"apiVersion": "v1", "kind": "Config", "current-context": "home", **parts}


async def test_the_walk_through(planes: tuple[BurstPlane, BurstPlane], tmp_path: Path) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(contexts(planes)))
    assert [name for name, _ in FILES] == ["prices.toml", "burst.toml", "job.yaml"]
    for name, text in FILES:
        (tmp_path / name).write_text(
            text.replace("/home/me/.kube/config", str(tmp_path / "config")).replace("_s = 30", "_s = 5")
        )

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "carico_agent", "burst", *arguments, "--config", "burst.toml"]

    def result(*arguments: str) -> str:
        done = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    async with Scene(planes) as scene:
        body = yaml.safe_load((tmp_path / "job.yaml").read_text())
        body["spec"]["template"]["metadata"] = {"annotations": {"test/work-s": "10"}}
        (tmp_path / "job.yaml").write_text(
            yaml.safe_dump({**body, "metadata": {**body["metadata"], "namespace": "default"}})
        )
        await asyncio.to_thread(planes[0].apply, tmp_path / "job.yaml")
        await asyncio.to_thread(
            wait_for, lambda: "unschedulable for" in result("plan"), "plan says that it waits", 60, 1.0
        )
        service = subprocess.Popen(command(), cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            await asyncio.to_thread(
                wait_for, lambda: "too-many: away → cloud" in result("status"), "it is away", 120, 1.0
            )
            await asyncio.to_thread(wait_for, lambda: all_done(scene, ["too-many"]), "it has ended", 120, 0.5)
        finally:
            service.terminate()
            service.wait(timeout=30)
        scene.judge(["too-many"], cluster="cloud")
