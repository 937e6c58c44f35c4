"""A release by one command: `make release`, or `python -m lab.release` (--help). Everything goes into dist/."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
