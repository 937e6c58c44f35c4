"""How to reach an API server and who we are there: in-cluster service account, or a kubeconfig.

A kubeconfig may be YAML or JSON. PyYAML is imported only when a kubeconfig is given that is not JSON: it costs 1.0 MB
resident and 50 ms (measured), nothing in-cluster.

TLS is always verified: `insecure-skip-tls-verify` is refused, and plain http goes to this machine only and without
credentials (`kubectl proxy`).
"""

import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from carico_agent.lib.kube.errors import BadAccess
from carico_agent.lib.net.address import is_loopback
from carico_agent.lib.net.owners import writable_by_others

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Exec:
    """A credential plugin, as in `users[].user.exec`."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"


@dataclass(frozen=True)
class Access:
    """Where the server is and how to prove who we are. Files are read again when they change; data is fixed."""

    server: str
    ca_file: str = ""
    ca_data: str = ""
    tls_server_name: str = ""
    proxy: str = ""
    token: str = ""
    token_file: str = ""
    certificate: bytes = b""
    """Client certificate and key, PEM."""
    key: bytes = b""
    exec: Exec | None = None
    namespace: str = "default"

    def tls(self, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext | None:
        """A verifying context; None for plain http."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None, cadata=self.ca_data or None)
            if certificate or self.certificate:
                _load_pair(context, certificate or self.certificate, key or self.key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise BadAccess(f"the certificates for {self.server} cannot be used: {error}") from error
        return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """ssl reads certificates from files only; ours is private and gone at once."""
    with tempfile.NamedTemporaryFile(prefix="carico-") as file:  # mode 0600
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def access_to(kubeconfig: str, context: str = "", environ: Mapping[str, str] = os.environ) -> Access:
    """The way a kubeconfig shows, or without one that of the Pod we run in; raises BadAccess. For everything that runs
    by itself: in a Pod no credential plugin is run at all, for a user who may write the Pod's ConfigMap could name
    one."""
    if not kubeconfig:
        return in_cluster(environ=environ)
    access = from_kubeconfig_of_service(kubeconfig, context)
    if access.exec is not None and environ.get("KUBERNETES_SERVICE_HOST"):
        raise BadAccess(f"{kubeconfig}: no exec plugin is run in a Pod; use its service account, or a token")
    return access


def from_kubeconfig_of_service(path: str, context: str = "") -> Access:
    """As `from_kubeconfig`, for a service: a credential plugin is run only when no other user could have named it."""
    access = from_kubeconfig(path, context)
    if access.exec is not None:
        files = [Path(path).expanduser(), *([Path(access.exec.command)] if "/" in access.exec.command else [])]
        for file in files:
            if why := writable_by_others(file):
                raise BadAccess(f"{path}: its exec plugin is not run: {why}")
    return access


def in_cluster(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Access:
    """The Pod's own service account. Its token is rotated by the kubelet, so the file is named, not read."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadAccess("not in a cluster: KUBERNETES_SERVICE_HOST is not set; give --kubeconfig FILE")
    if not (folder / "token").exists():
        raise BadAccess(f"{folder}/token is missing: the Pod needs automountServiceAccountToken")
    namespace = folder / "namespace"
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=str(folder / "ca.crt"),
        token_file=str(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_kubeconfig(path: str | os.PathLike[str], context: str = "") -> Access:
    """One context of a kubeconfig (default: its current-context). Relative paths are relative to the file."""
    return from_kubeconfigs([Path(path).expanduser()], context)


def from_kubeconfigs(files: Sequence[Path], context: str = "") -> Access:
    """The same of several files, as in $KUBECONFIG: what is found first counts."""
    return _of({file: _read(file) for file in files}, context)


def _of(documents: Mapping[Path, Any], context: str) -> Access:
    name = context or next(
        (str(one["current-context"]) for one in documents.values() if one.get("current-context")), ""
    )
    if not name:
        raise BadAccess(f"{_list(documents)}: no current-context; name a context")
    chosen, _ = _named(documents, "contexts", "context", name)
    cluster, cluster_file = _named(documents, "clusters", "cluster", str(chosen.get("cluster", "")))
    user: Mapping[str, Any] = {}
    user_file = cluster_file
    if chosen.get("user"):
        user, user_file = _named(documents, "users", "user", str(chosen["user"]))
    return _access(cluster, cluster_file, user, user_file, str(chosen.get("namespace") or "default"))


def from_text(text: str, name: str, context: str = "") -> Access:
    """A kubeconfig that came from elsewhere (a Secret, a provisioner): it names no files and runs no program, for who
    wrote it does not choose what is read or run here."""
    document = _parse(text.encode(), Path(name))
    for table, key in (("clusters", "cluster"), ("users", "user")):
        for entry in document.get(table) or ():
            value = (entry or {}).get(key) or {}
            for field_ in ("certificate-authority", "client-certificate", "client-key", "tokenFile", "exec"):
                if value.get(field_):
                    raise BadAccess(f"{name}: {field_} is not allowed here; write the data itself, or a token, into it")
    return _of({Path(name): document}, context)


def of_user(kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ) -> Access:
    """As kubectl chooses: the file that is given, else those in $KUBECONFIG, else ~/.kube/config, else the service
    account of the Pod we run in. Files in $KUBECONFIG that do not exist are left out."""
    if kubeconfig:
        return from_kubeconfig(kubeconfig, context)
    named = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    usual = named or [Path("~/.kube/config").expanduser()]
    if files := [file for file in usual if file.exists()]:
        return from_kubeconfigs(files, context)
    if not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ)
    raise BadAccess(f"no kubeconfig: {', '.join(map(str, usual))} does not exist; give --kubeconfig FILE")


def _access(cluster: Mapping[str, Any], file: Path, user: Mapping[str, Any], user_file: Path, namespace: str) -> Access:
    server = str(cluster.get("server", "")).rstrip("/")
    secret = bool(user)
    _check_server(server, secret, file)
    if cluster.get("insecure-skip-tls-verify"):
        raise BadAccess(f"{file}: insecure-skip-tls-verify is not supported; give certificate-authority-data instead")
    for key in ("auth-provider", "username", "as"):
        if user.get(key):
            raise BadAccess(f"{user_file}: {key} is not supported; use a token, a client certificate or an exec plugin")
    plugin = user.get("exec")
    ca_data = _decoded(cluster, "certificate-authority-data", file).decode("ascii", "replace")
    return Access(
        server,
        ca_file="" if ca_data else _beside(file, cluster.get("certificate-authority")),
        ca_data=ca_data,
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        token=str(user.get("token") or ""),
        token_file=_beside(user_file, user.get("tokenFile")),
        certificate=_decoded(user, "client-certificate-data", user_file)
        or _file(user_file, user.get("client-certificate")),
        key=_decoded(user, "client-key-data", user_file) or _file(user_file, user.get("client-key")),
        exec=_plugin(plugin, user_file) if plugin else None,
        namespace=namespace,
    )


def _check_server(server: str, secret: bool, file: Path) -> None:
    parts = urlsplit(server)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not is_loopback(parts.hostname or "") or secret:
        raise BadAccess(f"{file}: server {server!r}: https is needed (http only to this machine, without credentials)")


def _plugin(table: Mapping[str, Any], file: Path) -> Exec:
    command = str(table.get("command") or "")
    if not command:
        raise BadAccess(f"{file}: exec has no command")
    if "/" in command:
        command = _beside(file, command)
    environment = {str(entry["name"]): str(entry["value"]) for entry in table.get("env") or ()}
    arguments = tuple(str(argument) for argument in table.get("args") or ())
    return Exec(command, arguments, environment, str(table.get("apiVersion") or Exec.api_version))


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parse(file.read_bytes(), file)
    except OSError as error:
        raise BadAccess(f"{file}: {error.strerror}") from error


def _parse(text: bytes, file: Path) -> dict[str, Any]:
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = _parse_yaml(text, file)
    if not isinstance(document, dict):
        raise BadAccess(f"{file}: not a kubeconfig")
    return document


def _parse_yaml(text: bytes, file: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise BadAccess(f"{file}: pip install pyyaml to read YAML, or convert the file to JSON") from error
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise BadAccess(f"{file}: not a kubeconfig: {str(error).splitlines()[0]}") from error


def _named(documents: Mapping[Path, Any], table: str, key: str, name: str) -> tuple[Mapping[str, Any], Path]:
    """The entry `name` of a table, and the file it stands in."""
    for file, document in documents.items():
        for entry in document.get(table) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                value = entry.get(key)
                return value if isinstance(value, dict) else {}, file
    raise BadAccess(f"{_list(documents)}: {key} {name!r} is not in {table}")


def _list(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))


def _beside(file: Path, path: Any) -> str:
    return str(file.parent / str(path)) if path else ""


def _file(file: Path, path: Any) -> bytes:
    if not path:
        return b""
    try:
        return Path(_beside(file, path)).read_bytes()
    except OSError as error:
        raise BadAccess(f"{_beside(file, path)}: {error.strerror}") from error


def _decoded(table: Mapping[str, Any], key: str, file: Path) -> bytes:
    try:
        return base64.b64decode(str(table.get(key) or ""), validate=True)
    except binascii.Error as error:
        raise BadAccess(f"{file}: {key} is not base64: {error}") from error
