"""The parts of lab/cluster that need neither a control plane nor a virtual machine."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from carico_agent.node.sampling import NodeReader, Root
from carico_agent.node.sampling.reading import derive
from lab.cluster import node_image, processes
from lab.cluster.cluster import OneMachineCluster, stop_command
from lab.cluster.container_image import PACKAGES, write_image, write_tree
from lab.cluster.kubelet_proxy import address, serve
from lab.cluster.machine import Network
from lab.cluster.plane import ROOT
from lab.cluster.pretended_kernel import CORES, PODS, PretendedNode, by_node

UID = "0a1b2c3d-1111-2222-3333-444455556666"


def test_an_agent_reads_a_pretended_kernel(tmp_path: Path) -> None:
    """Six cores are wanted on four: all are busy, and threads wait half of the time."""
    node = PretendedNode(tmp_path)
    node.have({f"shop_web-{number}_{UID[:-1]}{number}": 1.0 for number in range(6)})
    reader = NodeReader(Root(tmp_path))
    node.step(1.0)
    first = reader.interpret(reader.grab(1.0))
    node.step(1.0)
    second = reader.interpret(reader.grab(2.0))
    assert reader.cores == CORES
    detail = derive(first, second, reader.resources).detail
    assert detail["cpu_utilisation"] == pytest.approx(1.0)
    assert detail["cpu_pressure_raw"] == pytest.approx((6.1 - CORES) / CORES, abs=1e-4)


def test_a_pretended_pod_has_a_cgroup_and_a_name_while_it_runs(tmp_path: Path) -> None:
    node = PretendedNode(tmp_path)
    node.have({f"shop_web_{UID}": 0.5})
    node.step(2.0)
    (group,) = (tmp_path / PODS).iterdir()
    assert group.name == f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
    assert int((group / "cpu.stat").read_text().split()[1]) == 1_000_000
    assert [one.name for one in (tmp_path / "var/log/pods").iterdir()] == [f"shop_web_{UID}"]
    node.have({})
    assert [*(tmp_path / PODS).iterdir(), *(tmp_path / "var/log/pods").iterdir()] == []


def test_which_pods_take_something_on_a_pretended_node() -> None:
    def pod(name: str, phase: str, **metadata: object) -> dict[str, object]:
        known = {"namespace": "shop", "name": name, "uid": UID, **metadata}
        return {"metadata": known, "spec": {"nodeName": "kwok-1"}, "status": {"phase": phase}}

    pods = [
        pod("a", "Running"),
        pod("b", "Running", annotations={"carico-lab/cpu": "2"}),
        pod("c", "Pending"),
        pod("d", "Running", ownerReferences=[{"kind": "DaemonSet"}]),
    ]
    assert by_node(pods) == {"kwok-1": {f"shop_a_{UID}": 0.5, f"shop_b_{UID}": 2.0}}


def test_an_image_names_every_layer_and_holds_those_that_are_not_left_out(tmp_path: Path) -> None:
    layers = [tmp_path / "base.tar", tmp_path / "tree.tar"]
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("carico_agent/__init__.py", "x = 1\n")
    layers[0].write_bytes(b"base")
    write_tree(layers[1], tmp_path / "a.whl")
    write_image(tmp_path / "image.tar", "localhost/a:1", layers, {"Entrypoint": ["a"]}, left_out=1)
    with tarfile.open(layers[1]) as tree:
        sources = [name for name in tree.getnames() if not name.endswith(".pyc")]
        assert sources == [f"{PACKAGES}/carico_agent/__init__.py", "opt/carico/bin/carico"]
    with tarfile.open(tmp_path / "image.tar") as tar:
        blobs = {name: _read(tar, name) for name in tar.getnames()}
    (listed,) = json.loads(blobs["index.json"])["manifests"]
    assert listed["annotations"] == {"io.containerd.image.name": "localhost/a:1"}
    manifest = json.loads(blobs[_blob(listed["digest"])])
    assert json.loads(blobs[_blob(manifest["config"]["digest"])])["config"] == {"Entrypoint": ["a"]}
    digests = [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}" for layer in layers]
    assert [layer["digest"] for layer in manifest["layers"]] == digests
    assert _blob(digests[0]) not in blobs
    assert blobs[_blob(digests[1])] == layers[1].read_bytes()


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def test_processes_of_a_cluster_are_found_and_ended_and_no_others(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]

    def start(folder: str) -> "subprocess.Popen[bytes]":
        one = subprocess.Popen(sleep, env={**os.environ, processes.MARK: folder}, stdout=subprocess.PIPE)
        assert one.stdout is not None
        one.stdout.read(1)
        return one

    ours, other = start(str(tmp_path)), start(f"{tmp_path}-other")
    try:
        assert processes.running(tmp_path) == [ours.pid]
        ours_ended = asyncio.run(_end_and_reap(tmp_path, ours))
        assert ours_ended == 1
        assert processes.running(tmp_path) == []
        assert other.poll() is None
    finally:
        for one in (ours, other):
            one.kill()
            one.wait()


async def _end_and_reap(folder: Path, process: "subprocess.Popen[bytes]") -> int:
    """A child of ours stays in /proc until somebody waits for it."""
    ended = asyncio.create_task(asyncio.to_thread(processes.end, folder))
    await asyncio.to_thread(process.wait)
    return await ended


async def test_the_api_server_reaches_a_kubelet_by_its_nodes_name(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    kubelet = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = kubelet.sockets[0].getsockname()[1]
    (tmp_path / "ports.json").write_text(json.dumps({"real-1": port}))
    proxy = asyncio.create_task(serve(str(tmp_path / "s"), tmp_path / "ports.json"))
    while not (tmp_path / "s").exists():
        await asyncio.sleep(0.01)
    for target in ("real-1:10250", f"127.0.0.1:{port}"):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"hello")
        assert await reader.read() == b"hello"
        writer.close()
    proxy.cancel()
    kubelet.close()


def test_other_addresses_are_connected_to_as_they_are() -> None:
    assert address(b"CONNECT [::1]:9751 HTTP/1.1\r\n\r\n", {"real-1": 1}) == ("::1", 9751)


def test_machines_have_networks_of_their_own() -> None:
    options = [Network(number).option({40000 + number: 10250}) for number in (1, 2, 3)]
    assert "net=10.1.2.0/24,host=10.1.2.2,dhcpstart=10.1.2.15,hostfwd=tcp:127.0.0.1:40002-:10250" in options[1]
    assert len({option.split(",")[2] for option in options}) == 3


def test_a_folder_that_is_no_clusters_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    assert OneMachineCluster(tmp_path).down() == 0
    assert (tmp_path / "thesis.tex").exists()


def test_the_summary_names_the_command_that_ends_this_cluster(tmp_path: Path) -> None:
    """It named `make cluster-down`, which ends the cluster of the usual folder only."""
    assert stop_command(node_image.cache() / "run") == "make cluster-down"
    assert stop_command(tmp_path).endswith(f" -m lab.cluster down --folder {tmp_path}")


def test_a_python_without_the_packages_of_the_agents_is_refused_at_once(tmp_path: Path) -> None:
    """The agents ended with ModuleNotFoundError in their logs, and `up` waited for their numbers."""
    hide = "import sys; import lab.cluster.__main__ as cluster; cluster.find_spec = lambda name: None; "
    words = ["up", "--folder", str(tmp_path / "run"), "--real-nodes", "0"]
    command = [sys.executable, "-c", hide + "sys.exit(cluster.main())", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "lacks the packages of the agents; use .venv/bin/python" in ended.stderr
    assert not (tmp_path / "run").exists()
