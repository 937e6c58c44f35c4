"""The Helm chart, made from the manifests of deploy/base: `python -m lab.release.chart` writes deploy/helm/carico.

Every object is the text of deploy/base, with a few values in place of constants and conditions around it. So the chart
and `kubectl apply -k deploy` cannot differ; tests/test_chart.py compares what both print.
"""

import gzip
import io
import re
import tarfile
from pathlib import Path

import yaml

from carico_agent import __version__
from lab.release import ROOT
from lab.release.environment import CannotRelease

BASE, CHART = ROOT / "deploy/base", ROOT / "deploy/helm/carico"
FILES = ("10-rbac", "15-own-node", "20-agent", "30-extender", "40-network")
NAMESPACE = "carico"
HEADING = "{{- /* Made from deploy/base by `python -m lab.release.chart`: change it there. */ -}}\n"
IMAGE = f"image: carico:{__version__}"
BLOCK = r"^( *)config\.toml: \|\n((?:\1  .*\n|\n)*)"
RESOURCES = r"^( *)resources:\n(?:\1  .*\n)+"

METADATA = f"""\
apiVersion: v2
name: carico
description: How many more Pods can each node take, right now? Answered on the node, from telemetry alone.
type: application
version: {__version__}
appVersion: {__version__}
kubeVersion: ">=1.30.0-0"
"""
HELPERS = f"""\
{{{{- define "carico.image" -}}}}
{{{{- if .Values.image.digest -}}}}
{{{{ .Values.image.repository }}}}@{{{{ .Values.image.digest }}}}
{{{{- else -}}}}
{{{{ .Values.image.repository }}}}:{{{{ .Values.image.tag | default .Chart.AppVersion }}}}
{{{{- end -}}}}
{{{{- end -}}}}
{{{{- define "carico.check" -}}}}
{{{{- if ne .Release.Namespace "{NAMESPACE}" -}}}}
{{{{- fail "its Leases are in the namespace {NAMESPACE}: helm install --namespace {NAMESPACE} --create-namespace" -}}}}
{{{{- end -}}}}
{{{{- end -}}}}
"""
NOTES = """\
carico runs as a DaemonSet. It reads /proc, /sys and containerd's socket of its node through hostPath volumes, which
Pod Security allows at the level "privileged" only:

  kubectl label namespace carico pod-security.kubernetes.io/enforce=privileged

{{ if .Values.extender.enabled -}}
The extender waits for the Secret carico-extender-tls; deploy/README.md of carico's source tree shows how to make it.
{{ end -}}
Then: kubectl carico nodes
"""
VALUES = """\
# What people change. Everything else is as in deploy/base of carico's source tree.
image:
  repository: carico
  tag: "" # the chart's version
  digest: "" # sha256:…; goes before the tag

agent:
  # The agent's configuration file; `carico print-config` shows all settings.
  config: |
{agent_config}
  resources:
{resources}

extender:
  enabled: true
  replicas: 2
  config: |
{extender_config}

# What RBAC cannot say: agents write their own node only (Kubernetes 1.30 and newer).
admissionPolicies:
  enabled: true

networkPolicies:
  enabled: true
"""


def files() -> dict[str, str]:
    """Every file of the chart by its path."""
    templates = {f"templates/{name}.yaml": _template(name) for name in FILES}
    return {
        "Chart.yaml": METADATA,
        "values.yaml": _values(),
        "templates/_helpers.tpl": HELPERS,
        "templates/NOTES.txt": NOTES,
        **templates,
    }


def _values() -> str:
    agent, extender = ((BASE / f"{name}.yaml").read_text() for name in ("20-agent", "30-extender"))
    found = re.search(RESOURCES, agent, re.MULTILINE)
    if found is None:
        raise CannotRelease("deploy/base/20-agent.yaml has no resources")
    resources = found[0].splitlines()[1:]
    indent = len(found[1]) + 2
    return VALUES.format(
        agent_config=_indented(_config(agent), 4),
        extender_config=_indented(_config(extender), 4),
        resources="\n".join(f"    {line[indent:]}" for line in resources),
    )


def _config(text: str) -> str:
    found = re.search(BLOCK, text, re.MULTILINE)
    if found is None:
        raise CannotRelease("a ConfigMap without config.toml")
    return "\n".join(line[len(found[1]) + 2 :] for line in found[2].rstrip().splitlines())


def _indented(text: str, width: int) -> str:
    return "\n".join(" " * width + line if line else "" for line in text.splitlines())


def _template(name: str) -> str:
    """One file of deploy/base, object by object."""
    documents = (BASE / f"{name}.yaml").read_text().rstrip().split("\n---\n")
    checked = '{{- include "carico.check" . -}}\n' if name == FILES[0] else ""
    return HEADING + checked + "".join(_object(name, document) for document in documents)


def _object(name: str, document: str) -> str:
    owner = "extender" if yaml.safe_load(document)["metadata"]["name"] == "carico-extender" else "agent"
    text = re.sub(
        BLOCK, rf"\1config.toml: |\n{{{{ .Values.{owner}.config | trim | indent 4 }}}}\n", document + "\n", flags=re.M
    )
    text = text.replace(IMAGE, 'image: {{ include "carico.image" . }}')
    text = text.replace("  replicas: 2\n", "  replicas: {{ .Values.extender.replicas }}\n")
    if owner == "agent":
        text = re.sub(
            RESOURCES, r"\1resources:\n\1  {{- toYaml .Values.agent.resources | nindent 12 }}\n", text, flags=re.M
        )
    conditions = [f".Values.{owner}.enabled"] if owner == "extender" else []
    conditions += {
        "15-own-node": [".Values.admissionPolicies.enabled"],
        "40-network": [".Values.networkPolicies.enabled"],
    }.get(name, [])
    if not conditions:
        return f"---\n{text}"
    condition = conditions[0] if len(conditions) == 1 else f"and {' '.join(conditions)}"
    return f"{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"


def write() -> None:
    for name, text in files().items():
        place = CHART / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def package(dist: Path, epoch: int) -> Path:
    """The chart as `helm package` makes it, the same bytes every time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in sorted(files().items()):
            entry, data = tarfile.TarInfo(f"carico/{name}"), text.encode()
            entry.size, entry.mode, entry.mtime = len(data), 0o644, epoch
            tar.addfile(entry, io.BytesIO(data))
    made = dist / f"carico-{__version__}.tgz"
    made.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return made


if __name__ == "__main__":
    write()
