"""What an extra of setup.cfg installs: `python -m tests.frameworks.names frameworks`.

`make test-frameworks` gives these names to pip in a venv that carico itself is not installed in."""

import configparser
import sys
from pathlib import Path


def names(extra: str) -> list[str]:
    read = configparser.ConfigParser()
    read.read(Path(__file__).parents[2] / "setup.cfg")
    return read["options.extras_require"][extra].split()


if __name__ == "__main__":
    print(*(name for extra in sys.argv[1:] for name in names(extra)))
