"""Every setting of the agent: declared, explained and bounded here, and nowhere else.

A section is a frozen dataclass; the string below each field is its documentation. `config.example.toml` is printed
from this file (`carico print-config`, a test compares), and `load` accepts nothing that is not declared here: all
errors come at once, each with its path and a suggestion.
"""

import ast
import difflib
import inspect
import os
import textwrap
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from carico_agent.settings_federation import Aggregator as Aggregator
from carico_agent.settings_federation import Federation as Federation
from carico_agent.settings_plugins import Plugins as Plugins
from carico_agent.settings_range import Range as Range


class BadSettings(ValueError):
    """The configuration has errors; all of them, one per line."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def runtime_dir() -> Path:
    """Where sockets go: /run/carico for root and services, the user's own runtime folder otherwise."""
    if given := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/run/carico")
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/carico-{os.geteuid()}"
    return Path(base) / "carico" if os.environ.get("XDG_RUNTIME_DIR") else Path(base)


def state_dir() -> Path:
    """What must survive a restart: /var/lib/carico for root and services, the user's own state folder otherwise."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/carico")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "carico"


@dataclass(frozen=True)
class Node:
    """Who this node is."""

    name: str = ""
    """Name under which this node publishes. Empty: the host name (in Kubernetes: $NODE_NAME)."""

    state: str = ""
    """Folder for what must survive a restart. Empty: /var/lib/carico for root and services, else
    $XDG_STATE_HOME/carico."""

    root: str = "/"
    """Folder under which proc/ and sys/ are found; in a container with the host mounted at /host: "/host"."""


@dataclass(frozen=True)
class Sampling:
    """How the kernel is read."""

    period_s: Annotated[float, Range(0.02, 10.0)] = 0.1
    """Time between samples [s]. The filters are tuned for 0.1."""

    io: bool = False
    """Also sample disks (pressure and busy time) as a resource named "io"."""

    network: bool = False
    """Also sample the busiest physical link as a resource named "network"."""

    realtime: bool = True
    """Sample in the real-time class (SCHED_RR, lowest priority; only this thread), so that ticks come in time on an
    overloaded node (`make bench`, "lateness"). Needs CAP_SYS_NICE."""

    niceness: Annotated[int, Range(-20, 19)] = -10
    """Niceness of the sampling thread where it is not real time. Counts only against threads of the same cgroup or
    session. Below 0 needs CAP_SYS_NICE; without it the thread stays at 0."""


@dataclass(frozen=True)
class Model:
    """How usage becomes Pod-Capacity. The defaults are the ones measured in lab/."""

    estimator: Literal["resource-space", "redenominated", "paper-dual", "paper-joint", "paper-delta"] = "resource-space"
    """Which estimator learns Baseline and Cost; the paper's own three are there for comparison."""

    limits: dict[str, float] = field(default_factory=lambda: {"cpu": 1.0, "memory": 0.85})
    """Usage at which a resource counts as full, per resource, in (0, 1]. Those not named: 1."""

    prior_cost: dict[str, float] = field(default_factory=dict)
    """What one Pod is believed to use before any was seen, as a share of the node, per resource.
    Not named: cpu 1/(2 x cores), "one Pod keeps one core busy"; others unknown."""

    max_pods: Annotated[int, Range(1, 100_000)] = 110
    """Never claim room for more Pods than this in all; 110 is what a kubelet admits by default."""

    forget: Annotated[float, Range(0.001, 1.0)] = 0.1
    """Weight of the newest second in the model of recent usage."""


@dataclass(frozen=True)
class Socket:
    """The local API: HTTP/1.1 and JSON over a unix socket."""

    path: str = ""
    """Empty: /run/carico/agent.sock for root and services, $XDG_RUNTIME_DIR/carico/agent.sock otherwise."""

    group: str = ""
    """Group that may connect (the socket has mode 0660). Empty: the agent's own group."""

    status_file: str = ""
    """Also keep the status in this file, replaced atomically once a second, for readers that want no socket."""

    ttl_s: Annotated[float, Range(1.0, 3600.0)] = 5.0
    """A published number is void when it is older than this [s]."""


@dataclass(frozen=True)
class Containerd:
    """Where containers are heard of. Without containerd Pods are found in the cgroup tree."""

    enabled: bool = True
    """false: never speak to containerd, look at the cgroup tree only (saves about 15 MB of memory)."""

    socket: str = ""
    """Path of containerd's socket. Empty: the usual places of containerd, k3s, RKE2, MicroK8s, k0s and Docker."""

    namespaces: tuple[str, ...] = ("k8s.io", "default", "moby")
    """containerd namespaces whose containers are Pods here: Kubernetes, plain ctr and nerdctl, Docker."""

    topics: tuple[str, ...] = (
        "/containers/", "/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete", "/tasks/paused",
        "/tasks/resumed", "/tasks/oom",
    )
    """Beginnings of the event topics to subscribe to. All of these are needed for right counts but /tasks/oom;
    add "/tasks/exec-" to see execs in /v1/events (every exec probe of every Pod is two events more)."""

    resync_s: Annotated[float, Range(1.0, 86400.0)] = 300.0
    """Time between full listings [s] that confirm what the events said. A listing asks every shim once."""


@dataclass(frozen=True)
class Pods:
    """Which Pods count, and how they are watched."""

    skip_namespaces: tuple[str, ...] = ()
    """Pods in these Kubernetes (or else containerd) namespaces do not count. Globs: "kube-*"."""

    skip_names: tuple[str, ...] = ()
    """Pods with these names do not count. Globs: "node-exporter-*"."""

    churn_s: Annotated[float, Range(0.0, 60.0)] = 1.5
    """For this long [s] after a container was created, started or ended, usage says nothing about the cost of Pods."""

    usage: bool = True
    """Read CPU, throttling, memory and pressure of every Pod from its cgroup."""

    usage_period_s: Annotated[float, Range(0.5, 60.0)] = 1.0
    """Time between these readings [s]."""

    usage_batch: Annotated[int, Range(1, 10_000)] = 40
    """At most this many Pods are read at a time, in turn: with 110 Pods each is read every third period.
    A Pod costs about 35 microseconds."""


@dataclass(frozen=True)
class Reservations:
    """Room that local schedulers hold for Pods which are on their way."""

    most: Annotated[int, Range(0, 100_000)] = 1000
    """How many reservations may be held at once; 0 switches them off."""

    most_ttl_s: Annotated[float, Range(1.0, 86_400.0)] = 600.0
    """No reservation lasts longer than this [s]."""


@dataclass(frozen=True)
class Settings:
    """The whole configuration, one field per TOML table."""

    node: Node = field(default_factory=Node)
    sampling: Sampling = field(default_factory=Sampling)
    model: Model = field(default_factory=Model)
    containerd: Containerd = field(default_factory=Containerd)
    pods: Pods = field(default_factory=Pods)
    socket: Socket = field(default_factory=Socket)
    federation: Federation = field(default_factory=Federation)
    aggregator: Aggregator = field(default_factory=Aggregator)
    reservations: Reservations = field(default_factory=Reservations)
    plugins: Plugins = field(default_factory=Plugins)

    @property
    def state_path(self) -> Path:
        return Path(self.node.state) if self.node.state else state_dir()

    @property
    def socket_path(self) -> Path:
        return Path(self.socket.path) if self.socket.path else runtime_dir() / "agent.sock"

    @property
    def journal_path(self) -> Path:
        return Path(self.plugins.journal) if self.plugins.journal else self.state_path / "journal"


def load(path: str | os.PathLike[str]) -> Settings:
    """Settings from a TOML file; raises BadSettings with every error in it."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise BadSettings([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings([f"{path}: not TOML: {error}"]) from error
    return parse(table)


def parse(table: Mapping[str, Any]) -> Settings:
    """Settings from a parsed TOML document."""
    errors: list[str] = []
    settings = _section(Settings, table, "", errors)
    errors += _cross_checks(settings) if not errors else []
    if errors:
        raise BadSettings(errors)
    return settings  # type: ignore[no-any-return]


def build(kind: type, table: Mapping[str, Any], path: str) -> Any:
    """Somebody else's dataclass (a plugin's) from one TOML table at `path`; raises BadSettings with every error."""
    errors: list[str] = []
    made = _section(kind, table, f"{path}.", errors)
    if errors:
        raise BadSettings(errors)
    return made


def override(settings: Settings, section: str, **values: Any) -> Settings:
    """A copy with some values of one section replaced; None means "not given"."""
    given = {key: value for key, value in values.items() if value is not None}
    return replace(settings, **{section: replace(getattr(settings, section), **given)}) if given else settings


def _cross_checks(settings: Settings) -> list[str]:
    errors = []
    for table, least in (("limits", 0.0), ("prior_cost", 0.0)):
        for name, value in getattr(settings.model, table).items():
            if not least < value <= 1:
                errors.append(f"model.{table}.{name}: {value} is not in (0, 1]")
    return errors


def _section(kind: type, table: Mapping[str, Any], path: str, errors: list[str]) -> Any:
    """Build one dataclass from one TOML table, noting every error."""
    hints = get_type_hints(kind, include_extras=True)
    known = {f.name: f for f in fields(kind)}
    values = {}
    for key, value in table.items():
        where = f"{path}{key}"
        if key not in known:
            errors.append(f"{where}: unknown key{_suggest(key, known)}")
        elif is_dataclass(hints[key]):
            if isinstance(value, Mapping):
                values[key] = _section(hints[key], value, f"{where}.", errors)
            else:
                errors.append(f"{where}: a table is expected, write [{where}]")
        else:
            problem = _problem(hints[key], value)
            if problem:
                errors.append(f"{where}: {problem}")
            else:
                values[key] = _convert(hints[key], value)
    return kind(**values)


def _suggest(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"


def _convert(hint: Any, value: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _convert(get_args(hint)[0], value)
    if hint is float:
        return float(value)
    if get_origin(hint) is tuple:
        return tuple(value)
    if get_origin(hint) is dict:
        return {key: _convert(get_args(hint)[1], item) for key, item in value.items()}
    return value


def _problem(hint: Any, value: Any) -> str | None:
    """Why `value` does not fit `hint`, or None."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        problem = _problem(args[0], value)
        bounds = args[1]
        if problem or not hasattr(bounds, "least"):  # by its fields: plugin_api, a sibling, has a Range of its own
            return problem
        if not bounds.least <= value <= bounds.most:
            return f"{value} is not between {bounds.least:g} and {bounds.most:g}"
        return None
    if origin is Literal:
        if value in args:
            return None
        close = difflib.get_close_matches(str(value), [str(a) for a in args], n=1)
        return f"{value!r} is not one of {', '.join(args)}" + (f"; did you mean {close[0]}?" if close else "")
    if origin in (Union, types.UnionType):
        return None if any(_problem(arg, value) is None for arg in args) else f"{value!r} does not fit"
    if origin is tuple:
        if not isinstance(value, list):
            return f"a list is expected, not {value!r}"
        return next((f"item {i}: {p}" for i, v in enumerate(value) if (p := _problem(args[0], v))), None)
    if origin is dict:
        if not isinstance(value, Mapping):
            return f"a table is expected, not {value!r}"
        return next((f"{key}: {p}" for key, v in value.items() if (p := _problem(args[1], v))), None)
    return _scalar_problem(hint, value)


_NAMES = {float: "a number", int: "a whole number", bool: "true or false", str: "text in quotes"}


def _scalar_problem(hint: type, value: Any) -> str | None:
    if hint is Any:
        return None
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return None if fits else f"{_NAMES.get(hint, hint.__name__)} is expected, not {value!r}"


def example() -> str:
    """The whole configuration as commented TOML with its defaults: config.example.toml."""
    blocks = ["# carico agent configuration. Every value below is the default; delete what you do not change.\n"
              "# Printed by `carico print-config`; checked by `carico check-config FILE`.\n"]
    for section in fields(Settings):
        kind = get_type_hints(Settings)[section.name]
        blocks.append(example_table(section.name, kind))
    return "\n".join(blocks)


def example_table(name: str, kind: type) -> str:
    """One section as commented TOML with its defaults; also prints the plugins' sample configurations."""
    lines = [*_comment(inspect.getdoc(kind) or ""), f"[{name}]"]
    hints, docs, defaults = get_type_hints(kind, include_extras=True), _field_docs(kind), kind()
    for item in fields(kind):
        tables = hints[item.name] == dict[str, dict[str, Any]]  # written so that [name.item.TABLE] may follow
        line = f"[{name}.{item.name}]" if tables else f"{item.name} = {_toml(getattr(defaults, item.name))}"
        lines += [*_comment(docs[item.name] + _bounds_text(hints[item.name])), line]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 110)]


def _bounds_text(hint: Any) -> str:
    if get_origin(hint) is Annotated and hasattr(get_args(hint)[1], "least"):
        bounds = get_args(hint)[1]
        return f" Between {bounds.least:g} and {bounds.most:g}."
    if get_origin(hint) is Literal:
        return f" One of: {', '.join(get_args(hint))}."
    return ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return repr(value)


@cache
def _field_docs(kind: type) -> dict[str, str]:
    """The string literal below each field, read from the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            assert isinstance(text, ast.Constant), f"{kind.__name__}.{statement.target.id} has no documentation"
            docs[statement.target.id] = str(text.value)
    return docs
