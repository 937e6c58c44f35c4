"""What tests and benchmarks share: a private containerd, a private Kubernetes control plane, processes of ours."""

from pathlib import Path

TREE = Path(__file__).parent.parent.parent
