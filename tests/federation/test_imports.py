"""What is loaded when."""

import subprocess
import sys

from .processes import ROOT


def test_grpc_is_loaded_only_when_it_is_needed():
    code = (
        "import sys, carico_agent.federation.client, carico_agent.federation.contribution\n"
        "print([m for m in ('grpc', 'google.protobuf', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
