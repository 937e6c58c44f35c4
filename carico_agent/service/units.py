"""What `carico install` and `carico uninstall` share: which files go where, and the commands after them.

Pure: a plan is made here, the commands print it or carry it out.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

UNITS = Path("/etc/systemd/system")
CONFIG = Path("/etc/carico/config.toml")
AGENT = "carico-agent.service"
SERVICES = (AGENT, "carico-aggregator.service", "carico-extender.service", "carico-plane.service")
PLANE_STATE = Path("/var/lib/carico-plane")
DROP_INS = UNITS / f"{AGENT}.d"
SYSUSERS = Path("/etc/sysusers.d/carico.conf")
RESTORE = Path("/usr/local/lib/carico/restore.pyz")
"""With --tuning: puts cgroup values back without any library, and is root's."""
BOOTED = Path("/run/systemd/system")
"""There while systemd is the init process: sd_booted(3) looks for the same folder."""
HOMES = ("/home", "/root", "/run/user")
FLEETING = ("/tmp", "/var/tmp", "/dev/shm")


class CannotInstall(Exception):
    """Why a service cannot be made of this installation, and what would help."""


@dataclass(frozen=True)
class ServiceOptions:
    """What the service shall be."""

    carico: Path
    """The `carico` command it runs; its environment is two folders up."""
    tuning: bool = False
    containerd: bool = False
    loopback_only: bool = False
    """Its configuration names no other machine: then it cannot reach one either."""
    lasting: bool = True
    """For this machine, not for an image elsewhere: then its environment must last."""


def template(name: str) -> str:
    return files("carico_units").joinpath(name).read_text()


def plan(options: ServiceOptions) -> dict[Path, str]:
    """Every file of the installation with its content, but the configuration.

    >>> sorted(path.stem for path in plan(ServiceOptions(Path("/opt/carico/bin/carico"))))
    ['carico', 'carico-agent', 'carico-aggregator', 'carico-extender', 'carico-plane']
    """
    prefix = options.carico.parent.parent
    at_home = any(prefix.is_relative_to(folder) for folder in HOMES)
    if options.lasting and any(prefix.is_relative_to(folder) for folder in FLEETING):
        raise CannotInstall(
            f"{prefix} does not last, and services have a /tmp of their own: install carico elsewhere, "
            "as with `python3 -m venv /opt/carico && /opt/carico/bin/pip install .` in carico's source tree"
        )
    if at_home and (options.tuning or options.containerd):
        raise CannotInstall(
            f"{prefix} is in a user's home folder: a user who may write there would be as good as root in a service "
            "with --tuning or --containerd. Install carico elsewhere, as with `python3 -m venv /opt/carico`"
        )
    wanted = {SYSUSERS: "sysusers.conf", **{UNITS / name: name for name in SERVICES}}
    if options.tuning:
        wanted[DROP_INS / "tuning.conf"] = "tuning.conf"
    if options.containerd:
        wanted[DROP_INS / "containerd.conf"] = "containerd.conf"
    elif options.tuning:
        wanted[DROP_INS / "sockets.conf"] = "sockets.conf"
    if options.loopback_only:
        wanted[DROP_INS / "loopback.conf"] = "loopback.conf"
    if at_home:
        for service in SERVICES:
            wanted[UNITS / f"{service}.d/home.conf"] = "home.conf"
    return {path: _filled(template(name), options.carico, prefix) for path, name in wanted.items()}


def _filled(text: str, carico: Path, prefix: Path) -> str:
    return text.replace("@CARICO@", quoted(carico)).replace("@PREFIX@", quoted(prefix))


def quoted(path: Path) -> str:
    """A path as units name it: blanks end a word and % begins a specifier (systemd.syntax, systemd.unit).

    >>> quoted(Path("/opt/carico")), quoted(Path("/opt/a b"))
    ('/opt/carico', '"/opt/a b"')
    """
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if any(character in text for character in " '\t") else text


def installed(root: Path) -> list[Path]:
    """Files that an installation under `root` has left, without the configuration and what was learned."""
    candidates = [SYSUSERS, RESTORE, *(UNITS / name for name in SERVICES)]
    drop_ins = ("tuning", "containerd", "sockets", "loopback", "home")
    candidates += [UNITS / f"{service}.d/{name}.conf" for service in SERVICES for name in drop_ins]
    return [path for path in candidates if under(root, path).exists()]


def under(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def inside(root: Path, path: Path, itself: bool = True) -> Path:
    """As `under`, for writing: raises OSError where a link leads out of `root`, for an image may be anybody's.
    `itself`: whether the last part counts, too (a file that is removed may be a link)."""
    place = under(root, path)
    if not (place if itself else place.parent).resolve().is_relative_to(root.resolve()):
        raise OSError(f"{place}: a link leads out of {root}")
    return place
