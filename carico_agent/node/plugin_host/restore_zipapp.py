"""The restore zipapp: `restore.pyz` beside the journal, so that the old values come back even after `pip uninstall`.

A zip that python3 runs without any library: the journal, the knobs and the restore, nothing else. systemd's
ExecStopPost calls it, so a `kill -9` after an uninstall still ends with the old values.
"""

import io
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

from carico_agent.lib.supervise.files import replace_file

MODULES = (
    "__init__.py",
    "node/__init__.py",
    "plugin_api/__init__.py",
    "plugin_api/declare.py",
    "plugin_api/formats.py",
    "node/plugin_host/__init__.py",
    "node/plugin_host/cgroupfs.py",
    "node/plugin_host/journal.py",
    "node/plugin_host/restore.py",
)

MAIN = """\
import sys
from carico_agent.node.plugin_host.journal import JournalBusy, OldJournal
from carico_agent.node.plugin_host.restore import restore
path = sys.argv[1] if len(sys.argv) > 1 else __file__.rpartition("/")[0].rpartition("/")[0] + "/journal"
try:
    done = restore(path)
except (JournalBusy, OldJournal) as refused:
    sys.exit(str(refused))
for item in done:
    print(f"{item.entry.knob.cgroup}/{item.entry.knob.key}: {item.how} {item.detail}".rstrip())
sys.exit(any(item.how == "failed" for item in done))
"""


def write(folder: Path) -> Path:
    """Put the zipapp into `folder`, replaced in one piece."""
    target = folder / "restore.pyz"
    replace_file(target, zipapp(), 0o600)
    return target


def zipapp() -> bytes:
    encoded = io.BytesIO()
    package = files("carico_agent")
    with zipfile.ZipFile(encoded, "w") as archive:
        knobs = [f"node/plugin_host/knobs/{file.name}" for file in package.joinpath("node/plugin_host/knobs").iterdir()]
        for name in (*MODULES, *sorted(name for name in knobs if name.endswith(".py"))):
            archive.writestr(f"carico_agent/{name}", package.joinpath(name).read_bytes())
        archive.writestr("__main__.py", MAIN)
    return encoded.getvalue()


def command(folder: Path) -> list[str]:
    """How to run it."""
    return [sys.executable, "-I", str(folder / "restore.pyz")]
