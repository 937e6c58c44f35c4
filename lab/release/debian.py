"""A .deb per release of Debian and Ubuntu: carico with all that it needs in /usr/lib/carico, as a systemd service.

Why one per release: numpy and grpcio are compiled for one version of Python, and each release has another. Why not the
distributions' own packages of them: those of Debian 12 are older than carico needs.

The package starts the service as `carico install --systemd` does; the units come from the same templates. Purging it
removes the user, the configuration and what was learned.
"""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from carico_agent import __version__
from carico_agent.service.commands.uninstall import LEARNED, PRIVATE
from carico_agent.service.units import AGENT, CONFIG, SERVICES, SYSUSERS, UNITS, ServiceOptions, plan, under
from carico_agent.settings import example
from lab.release import man
from lab.release.environment import download, make

PREFIX = Path("/usr/lib/carico")
SHIPPED = {UNITS: Path("/usr/lib/systemd/system"), SYSUSERS.parent: Path("/usr/lib/sysusers.d")}
"""Where `carico install` puts a file → where a package does: /etc is the administrator's."""


@dataclass(frozen=True)
class DebianRelease:
    name: str
    """The end of the package's version."""
    python: str


RELEASES = (DebianRelease("deb12", "3.11"), DebianRelease("deb13", "3.13"), DebianRelease("ubuntu24.04", "3.12"))

CONTROL = """\
Package: carico-agent
Version: {version}
Architecture: amd64
Maintainer: the carico authors <carico@localhost>
Installed-Size: {size_kib}
Depends: python{python}, libstdc++6, passwd, systemd
Section: admin
Priority: optional
Description: How many more Pods can this node take, right now?
 One light process measures every Pod, learns what each workload costs, and
 publishes Pod-Capacity: a number that schedulers can compare and reserve.
"""
AFTER_INSTALL = f"""\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
systemd-sysusers carico.conf
{PREFIX}/bin/python -m compileall -q {PREFIX}/lib || true
systemctl enable -q {AGENT}
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl restart {AGENT}
fi
"""
BEFORE_REMOVAL = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ]; then
  [ ! -d /run/systemd/system ] || systemctl stop {" ".join(SERVICES)}
  systemctl disable -q {" ".join(SERVICES)}
fi
find {PREFIX} -type d -name __pycache__ -prune -exec rm -r {{}} +
"""
AFTER_REMOVAL = f"""\
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$1" = purge ] || exit 0
rm -rf {CONFIG.parent} {" ".join(map(str, (*LEARNED, *PRIVATE)))} /run/carico
if getent passwd carico >/dev/null; then userdel carico || true; fi
if getent group carico >/dev/null; then groupdel carico || true; fi
"""


def build(dist: Path, wheel: Path, epoch: int) -> list[Path]:
    return [_package(dist, wheel, release, epoch) for release in RELEASES]


def _package(dist: Path, wheel: Path, release: DebianRelease, epoch: int) -> Path:
    version = f"{__version__}-1~{release.name}"
    made = dist / f"carico-agent_{version}_amd64.deb"
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name, "stage")
        stage.mkdir(mode=0o755)
        wheels = download(Path(name, "wheels"), release.python)
        make(under(stage, PREFIX), str(PREFIX), release.python, [*wheels, wheel])
        _files(stage)
        _control(stage, version, release)
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "--threads-max=1", "--build", str(stage), str(made)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return made


def _files(stage: Path) -> None:
    """Units, the user, the configuration and the commands in the PATH."""
    files = {CONFIG: example()}
    for path, text in plan(ServiceOptions(PREFIX / "bin/carico", lasting=False)).items():
        files[SHIPPED[path.parent] / path.name] = text
    for path, text in files.items():
        place = under(stage, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o644)
    man.write(stage / "usr/share/man/man1")
    (stage / "usr/bin").mkdir()
    for command in ("carico", "kubectl-carico"):
        (stage / "usr/bin" / command).symlink_to(f"../lib/carico/bin/{command}")
    for path in stage.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _control(stage: Path, version: str, release: DebianRelease) -> None:
    size = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    control = stage / "DEBIAN"
    control.mkdir(mode=0o755)
    text = CONTROL.format(version=version, python=release.python, size_kib=size // 1024)
    scripts = {"postinst": AFTER_INSTALL, "prerm": BEFORE_REMOVAL, "postrm": AFTER_REMOVAL}
    for name, content in {"control": text, "conffiles": f"{CONFIG}\n", **scripts}.items():
        (control / name).write_text(content)
        (control / name).chmod(0o755 if name in scripts else 0o644)
