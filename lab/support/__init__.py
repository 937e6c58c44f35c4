"""What tests and benchmarks share: a private containerd, control planes, a browser, invented nodes, our processes.

Tests import from here; nothing in lab/ imports tests.
"""

from pathlib import Path

TREE = Path(__file__).parent.parent.parent
