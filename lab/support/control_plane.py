"""A private Kubernetes control plane: etcd, kube-apiserver and kube-scheduler as real processes on loopback ports.

Binaries come from KUBEBUILDER_ASSETS, or from the cache that `make kube` fills. Everything else (data, certificates,
tokens, logs) lives in one temporary folder; `stop` ends all processes.
"""

import base64
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lab.support.etcd_objects import Etcd
from lab.support.kube_admin import Admin, AdminError
from lab.support.kube_versions import kubernetes
from lab.support.waiting import free_port, wait_for

BINARIES = ("etcd", "kube-apiserver", "kube-scheduler")

USERS = {  # token: user, groups
    "admin-token": ("admin", "system:masters"),
    "scheduler-token": ("system:kube-scheduler", ""),
    "agent-token": ("system:serviceaccount:carico:carico-agent", "system:serviceaccounts"),
    "extender-token": ("system:serviceaccount:carico:carico-extender", "system:serviceaccounts"),
    "plane-token": ("system:serviceaccount:carico:carico-plane", "system:serviceaccounts"),
    "nobody-token": ("nobody", ""),
}


def binaries() -> Path:
    """The folder that has all of BINARIES; raises LookupError with the reason if there is none."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(given) if given else kubernetes().bin
    absent = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    if not absent:
        return folder
    raise LookupError(f"{folder} has no {', '.join(absent)}; `make kube` builds Kubernetes {kubernetes().name}")


class Plane:
    """etcd + kube-apiserver, and a scheduler when asked for."""

    SERVER_NAMES: tuple[str, ...] = ("IP:127.0.0.1", "DNS:localhost")
    """What clients call the server: subject alternative names of its certificate."""
    ACCESS: tuple[str, ...] = (
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--endpoint-reconciler-type=none",
    )
    """Flags of kube-apiserver that differ where real kubelets run Pods with service accounts."""

    def __init__(self, folder: Path, gates: tuple[str, ...] = (), api: str = "") -> None:
        """`gates`: features that are off by default; `api`: a group/version that is."""
        self.folder, self.bin, self._gates, self._api = folder, binaries(), gates, api
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        self.etcd = Etcd(f"http://127.0.0.1:{self._etcd_port}")
        self.ca = folder / "ca.crt"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self._certificates()
        self._files()
        self.version = self._version()
        self.admin: Admin

    # ---- life

    def start(self) -> None:
        self.start_etcd()
        self.start_api()
        self.admin = Admin(self.server, self.ca)

    def start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self._peer_port}"
        client = f"http://127.0.0.1:{self._etcd_port}"
        self._run(
            "etcd",
            "--data-dir",
            str(self.folder / "etcd"),
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        )

    def back_up(self) -> Path:
        """A copy of the store as it is now; the API server is away meanwhile."""
        copy = self.folder / "etcd.backup"
        self._stop_store()
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "etcd", copy)
        self.start_etcd()
        self.start_api()
        return copy

    def restore(self, copy: Path) -> None:
        """The store is again as it was in `copy`: objects and resourceVersions go back in time."""
        self._stop_store()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(copy, self.folder / "etcd")
        self.start_etcd()
        self.start_api()

    def _stop_store(self) -> None:
        self.stop_api()
        self._end("etcd")

    def start_api(self) -> None:
        """Start the API server, also again after `stop_api`, and wait until it is ready."""
        f = self.folder
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={f}/server.crt",
            f"--tls-private-key-file={f}/server.key",
            f"--client-ca-file={self.ca}",
            f"--requestheader-client-ca-file={f}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={f}/front-proxy.crt",
            f"--proxy-client-key-file={f}/front-proxy.key",
            f"--token-auth-file={f}/tokens.csv",
            *self.ACCESS,
            f"--cert-dir={f}/apiserver",
            f"--service-account-key-file={f}/sa.key",
            f"--service-account-signing-key-file={f}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--audit-policy-file={f}/audit.json",
            f"--audit-log-path={f}/audit.log",
            "--profiling=false",
            "--allow-privileged=true",
            *_beta_flags(self.version),
            *_gate_flags(self._gates),
            *([f"--runtime-config={self._api}=true"] if self._api else []),
        )
        admin = Admin(self.server, self.ca)

        def ready() -> bool:
            self._check("kube-apiserver")
            try:
                return bool(admin.get("/readyz") == "ok" and admin.get("/api/v1/namespaces/default"))
            except (OSError, AdminError):
                return False

        wait_for(ready, "the API server is ready", 120)

    def stop_api(self) -> None:
        self._end("kube-apiserver", signal.SIGKILL)

    def start_scheduler(
        self,
        config: dict[str, Any] | None = None,
        name: str = "kube-scheduler",
        *,
        without: tuple[str, ...] = (),
        program: Path = Path("kube-scheduler"),
    ) -> None:
        """A kube-scheduler; `config` is merged into its KubeSchedulerConfiguration (`extenders`, `profiles`). The
        feature gates of `without` are off. `program`: another scheduler that is configured in the same way."""
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig("scheduler-token")), "qps": 500, "burst": 1000},
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
            **(config or {}),
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        serving = self._serving(name, self.kubeconfig("scheduler-token"))
        self._run(
            str(program),
            f"--config={path}",
            "--authentication-skip-lookup=true",
            *serving,
            *_gate_flags(self._gates, without),
            name=name,
        )

    def run_controllers(self, names: str) -> None:
        """A kube-controller-manager with these controllers (comma-separated) alone; `stop_controllers` ends it."""
        config = self.kubeconfig("admin-token")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            *self._serving("kube-controller-manager", config),
            f"--controllers={names}",
            "--leader-elect=false",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
        )

    def stop_controllers(self) -> None:
        self._end("kube-controller-manager")

    def _serving(self, name: str, kubeconfig: Path) -> list[str]:
        """Flags by which a scheduler or controller manager serves its health and metrics; `component` asks for them."""
        self.ports[name] = free_port()
        return [
            f"--secure-port={self.ports[name]}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={self.folder}/server.crt",
            f"--tls-private-key-file={self.folder}/server.key",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        ]

    def schedulers(self) -> list[str]:
        return [name for name in self._processes if name.startswith("kube-scheduler")]

    def apply(self, *files: Path) -> dict[str, str]:
        """Create or replace every object in these files; what the server is too old for is returned with the reason."""
        skipped = {}
        for document in documents(*files):
            name = f"{document['kind']}/{document['metadata']['name']}"
            if why := self._apply(document):
                skipped[name] = why
        return skipped

    def _apply(self, document: dict[str, Any]) -> str:
        version = document["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            kinds = {r["kind"]: r for r in self.admin.get(root)["resources"] if "/" not in r["name"]}
        except AdminError as error:
            if error.status != 404:
                raise
            kinds = {}
        if document["kind"] not in kinds:
            return f"{version} {document['kind']} is not served by {self.version[0]}.{self.version[1]}"
        kind, name = kinds[document["kind"]], document["metadata"]["name"]
        where = f"/namespaces/{document['metadata']['namespace']}" if kind["namespaced"] else ""
        try:
            self.admin.post(f"{root}{where}/{kind['name']}", document)
        except AdminError as error:
            if error.status != 409:
                raise
            self.admin.merge(f"{root}{where}/{kind['name']}/{name}", document)
        return ""

    def stop_scheduler(self, name: str = "kube-scheduler") -> None:
        if name in self._processes:
            self._end(name)

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self._end(name, signal.SIGKILL)

    def cpu_s(self) -> dict[str, float]:
        """CPU time of every process so far [s]."""
        return {name: _cpu_s(process.pid) for name, process in self._processes.items()}

    def _run(self, binary: str, *arguments: str, name: str = "") -> None:
        with (self.folder / f"{name or binary}.log").open("ab") as log:
            self._processes[name or binary] = subprocess.Popen([self.bin / binary, *arguments], stdout=log, stderr=log)

    def _end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def component(self, name: str, path: str) -> str:
        """GET of a scheduler or controller manager."""
        url, context = f"https://127.0.0.1:{self.ports[name]}{path}", ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            return str(answer.read().decode())

    def _check(self, name: str) -> None:
        log = (self.folder / f"{name}.log").read_text()[-3000:]
        assert self._processes[name].poll() is None, f"{name} ended:\n{log}"

    # ---- who may come in

    def kubeconfig(self, token: str = "", **user: str) -> Path:
        """A kubeconfig with this token, or other user fields; JSON, which is YAML too."""
        path = self.folder / f"kubeconfig-{token or '-'.join(user)}.json"
        ca = base64.b64encode(self.ca.read_bytes()).decode()
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {"name": "test", "cluster": {"server": self.server, "certificate-authority-data": ca}}
                    ],
                    "users": [{"name": "user", "user": {"token": token} if token else user}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
                }
            )
        )
        return path

    def client_certificate(self, name: str, user: str, ended: bool = False) -> tuple[Path, Path]:
        """A client certificate for `user`, good for a day or ended in 2020."""
        self._openssl(f"req -new -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={user}")
        (self.folder / "index.txt").write_text("")
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\npolicy=p\ndefault_md=sha256\n"
            "rand_serial=yes\n[p]\ncommonName=supplied\n"
        )
        span = "-startdate 20200101000000Z -enddate 20200102000000Z" if ended else "-days 1"
        self._openssl(
            f"ca -batch -config ca.cnf -cert ca.crt -keyfile ca.key -in {name}.csr -out {name}.crt -notext {span}"
        )
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def client_context(self, name: str) -> ssl.SSLContext:
        """To talk to whoever trusts our authority."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(*self.client_certificate(name, name))
        return context

    def _certificates(self) -> None:
        (self.folder / "server.ext").write_text(
            f"subjectAltName={','.join(self.SERVER_NAMES)}\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n"
        )
        new = "-newkey rsa:2048 -nodes"
        for name in ("ca", "front-proxy-ca"):  # the aggregation layer has an authority of its own, as in a cluster
            self._openssl(
                f"req -x509 {new} -keyout {name}.key -out {name}.crt -days 2 -subj /CN=carico-test-{name} "
                "-addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
            )
        self._openssl(f"req -new {new} -keyout front-proxy.key -out front-proxy.csr -subj /CN=front-proxy")
        self._openssl(
            "x509 -req -in front-proxy.csr -CA front-proxy-ca.crt -CAkey front-proxy-ca.key -CAcreateserial "
            "-out front-proxy.crt -days 2"
        )
        self._openssl(f"req -new {new} -keyout server.key -out server.csr -subj /CN=kube-apiserver")
        self._openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 "
            "-extfile server.ext"
        )
        self._openssl("genrsa -out sa.key 2048")

    def serving_certificate(self, name: str) -> tuple[Path, Path]:
        """Of somebody who serves on loopback, as deploy/README.md makes the extender's: with an elliptic curve."""
        curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
        self._openssl(f"req -new {curve} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        self._openssl(
            f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 2 "
            "-extfile server.ext"
        )
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def _openssl(self, command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=self.folder, check=True, capture_output=True)

    def _files(self) -> None:
        rows = [f'{token},{user},{user},"{groups}"' for token, (user, groups) in USERS.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        ours = [user for user, _ in USERS.values() if "serviceaccount" in user]
        (self.folder / "audit.json").write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [
                        {
                            "level": "RequestResponse",
                            "users": ours,
                            "verbs": ["patch"],
                            "resources": [{"group": "", "resources": ["nodes/status"]}],
                        },
                        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/binding"]}]},
                        {"level": "Metadata", "users": ours},
                        {"level": "None"},
                    ],
                }
            )
        )

    def audit(self) -> list[Any]:
        """Every request of the carico users so far, and every binding, as the server saw them."""
        path = self.folder / "audit.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _version(self) -> tuple[int, int]:
        version = subprocess.run([self.bin / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
        found = re.search(r"v(\d+)\.(\d+)", version.stdout)
        assert found is not None
        return int(found[1]), int(found[2])


def _beta_flags(version: tuple[int, int]) -> list[str]:
    """MutatingAdmissionPolicy is beta, and off, in 1.34 and 1.35."""
    if not (1, 34) <= version < (1, 36):
        return []
    group = "admissionregistration.k8s.io/v1beta1"
    return ["--feature-gates=MutatingAdmissionPolicy=true", f"--runtime-config={group}=true"]


def _gate_flags(on: tuple[str, ...], off: tuple[str, ...] = ()) -> list[str]:
    gates = [f"{gate}=true" for gate in on] + [f"{gate}=false" for gate in off]
    return [f"--feature-gates={','.join(gates)}"] if gates else []


def documents(*files: Path) -> list[Any]:
    """The Kubernetes objects in YAML files; kustomizations are none."""
    found = [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]
    return [document for document in found if document["kind"] != "Kustomization"]


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def running(folder: Path) -> Iterator[Plane]:
    """A plane for a fixture."""
    plane = Plane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
