"""Files of a pinned Go module: definitions that its project ships beside its code."""

import json
import subprocess
from pathlib import Path
from typing import Any

from lab.support.kube_versions import part


def module_folder(name: str) -> Path:
    """The sources of a part's pinned version, as Go keeps them; raises LookupError where Go cannot get them."""
    command = ["go", "mod", "download", "-json", part(name).pin]
    try:
        ran = subprocess.run(command, capture_output=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise LookupError(f"go has no {part(name).pin}: {error}") from error
    where: Any = json.loads(ran.stdout)
    return Path(where["Dir"])
