"""What is generated and committed is what its source makes: code from .proto files, the chart from the manifests."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.release.chart import CHART, files

PACKAGE = Path(__file__).parents[1] / "carico_agent"


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_generated_code_is_reproduced_byte_for_byte(tmp_path: Path) -> None:
    committed = {path.relative_to(PACKAGE): path.read_text() for path in PACKAGE.rglob("*_pb2.py*")}
    subprocess.run([PACKAGE / "generate_proto.sh", tmp_path], check=True, env={**os.environ, "PYTHON": sys.executable})
    made = {path.relative_to(tmp_path / PACKAGE.name): path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    assert made.keys() == committed.keys() and len(made) > 10
    sample = next(text for path, text in committed.items() if path.suffix == ".py")
    version = next(line for line in sample.splitlines() if "Protobuf Python Version" in line)
    if not any(version in text for text in made.values()):
        pytest.skip(f"another protoc than the one of the committed code ({version})")
    assert [str(path) for path, text in made.items() if text != committed[path]] == []


def test_the_helm_chart_is_made_from_the_manifests() -> None:
    committed = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    assert committed == files(), "python -m lab.release.chart renews it"
