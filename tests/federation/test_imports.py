"""What is loaded when; and the generated code is that of the .proto beside it."""

import os
import subprocess
import sys

import pytest

from .processes import ROOT


def test_grpc_is_loaded_only_when_it_is_needed():
    code = (
        "import sys, carico_agent.federation.client, carico_agent.federation.contribution\n"
        "print([m for m in ('grpc', 'google.protobuf', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_generated_code_is_what_the_proto_says(tmp_path):
    pytest.importorskip("grpc_tools")
    folder = ROOT / "carico_agent/federation/proto"
    subprocess.run([folder / "generate.sh", tmp_path], env={**os.environ, "PYTHON": sys.executable}, check=True)
    for name in ("federation_pb2.py", "federation_pb2.pyi"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
