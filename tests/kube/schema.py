"""Fields and types of what a control plane of another version serves, checked by hand.

From kubernetes/kubernetes: staging/src/k8s.io/kube-scheduler/config/v1/types.go,
component-base/config/v1alpha1/types.go, api/admissionregistration/v1{,beta1}/types.go. Only what may be written in a
file; kube-scheduler decodes strictly, so an unknown field keeps it from starting.
"""

import re
from typing import Any

TEXT, FLAG, WHOLE, NUMBER, SPAN = "text", "flag", "whole", "number", "span"
_LEAVES = {
    TEXT: lambda it: isinstance(it, str),
    FLAG: lambda it: isinstance(it, bool),
    WHOLE: lambda it: isinstance(it, int) and not isinstance(it, bool),
    NUMBER: lambda it: isinstance(it, int | float) and not isinstance(it, bool),
    SPAN: lambda it: isinstance(it, str) and re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", it) is not None,
}

_LEADER = {
    "leaderElect": FLAG,
    "leaseDuration": SPAN,
    "renewDeadline": SPAN,
    "retryPeriod": SPAN,
    "resourceLock": TEXT,
    "resourceName": TEXT,
    "resourceNamespace": TEXT,
}
_CLIENT = {"kubeconfig": TEXT, "acceptContentTypes": TEXT, "contentType": TEXT, "qps": NUMBER, "burst": WHOLE}
_TLS = {
    "insecure": FLAG,
    "serverName": TEXT,
    "certFile": TEXT,
    "keyFile": TEXT,
    "caFile": TEXT,
    "certData": TEXT,
    "keyData": TEXT,
    "caData": TEXT,
}
_EXTENDER = {
    "urlPrefix": TEXT,
    "filterVerb": TEXT,
    "preemptVerb": TEXT,
    "prioritizeVerb": TEXT,
    "weight": WHOLE,
    "bindVerb": TEXT,
    "enableHTTPS": FLAG,
    "tlsConfig": _TLS,
    "httpTimeout": SPAN,
    "nodeCacheCapable": FLAG,
    "managedResources": [{"name": TEXT, "ignoredByScheduler": FLAG}],
    "ignorable": FLAG,
}
_WEIGHTED = [{"name": TEXT, "weight": WHOLE}]
_SCORE = {"enabled": _WEIGHTED, "disabled": _WEIGHTED}
_FIT = {
    "name": TEXT,
    "args": {
        "scoringStrategy": {
            "type": TEXT,
            "resources": _WEIGHTED,
            "requestedToCapacityRatio": {"shape": [{"utilization": WHOLE, "score": WHOLE}]},
        }
    },
}
"""Of the plugins only NodeResourcesFit is configured anywhere (NodeResourcesFitArgs)."""

_META = {"name": TEXT}
_SELECTOR = {"matchLabels": {"*": TEXT}}
_RULES = [
    {
        "resourceNames": [TEXT],
        "operations": [TEXT],
        "apiGroups": [TEXT],
        "apiVersions": [TEXT],
        "resources": [TEXT],
        "scope": TEXT,
    }
]
_MATCH = {
    "namespaceSelector": _SELECTOR,
    "objectSelector": _SELECTOR,
    "resourceRules": _RULES,
    "excludeResourceRules": _RULES,
    "matchPolicy": TEXT,
}
_NAMED = [{"name": TEXT, "expression": TEXT}]
_EXPRESSION = {"expression": TEXT}

SCHEMAS: dict[tuple[str, str], Any] = {
    ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"): {
        "parallelism": WHOLE,
        "leaderElection": _LEADER,
        "clientConnection": _CLIENT,
        "enableProfiling": FLAG,
        "enableContentionProfiling": FLAG,
        "percentageOfNodesToScore": WHOLE,
        "podInitialBackoffSeconds": WHOLE,
        "podMaxBackoffSeconds": WHOLE,
        "profiles": [{"schedulerName": TEXT, "plugins": {"score": _SCORE}, "pluginConfig": [_FIT]}],
        "extenders": [_EXTENDER],
        "delayCacheUntilActive": FLAG,
    },
    ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy"): {
        "metadata": _META,
        "spec": {
            "matchConstraints": _MATCH,
            "variables": _NAMED,
            "failurePolicy": TEXT,
            "matchConditions": _NAMED,
            "mutations": [{"patchType": TEXT, "applyConfiguration": _EXPRESSION, "jsonPatch": _EXPRESSION}],
            "reinvocationPolicy": TEXT,
        },
    },
    ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicyBinding"): {
        "metadata": _META,
        "spec": {"policyName": TEXT, "matchResources": _MATCH},
    },
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): {
        "metadata": _META,
        "spec": {
            "matchConstraints": _MATCH,
            "variables": _NAMED,
            "failurePolicy": TEXT,
            "matchConditions": _NAMED,
            "validations": [{"expression": TEXT, "message": TEXT, "reason": TEXT, "messageExpression": TEXT}],
        },
    },
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): {
        "metadata": _META,
        "spec": {"policyName": TEXT, "matchResources": _MATCH, "validationActions": [TEXT]},
    },
}
SCHEMAS |= {  # v1 since 1.36, with the same fields
    ("admissionregistration.k8s.io/v1", kind): SCHEMAS["admissionregistration.k8s.io/v1beta1", kind]
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
}


def problems(document: dict[str, Any]) -> list[str]:
    """What a strict decoder would not take; LookupError if the kind is not known here."""
    schema = SCHEMAS[document["apiVersion"], document["kind"]]
    return _problems(document, {"apiVersion": TEXT, "kind": TEXT, **schema}, "")


def _problems(value: Any, schema: Any, path: str) -> list[str]:
    if isinstance(schema, str):
        return [] if _LEAVES[schema](value) else [f"{path}: {value!r} is no {schema}"]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{path}: must be a list"]
        return [found for n, entry in enumerate(value) for found in _problems(entry, schema[0], f"{path}[{n}]")]
    if not isinstance(value, dict):
        return [f"{path}: must be a mapping"]
    found = []
    for key, entry in value.items():
        inner = schema.get(key, schema.get("*"))
        found += [f"{path}.{key}: unknown"] if inner is None else _problems(entry, inner, f"{path}.{key}")
    return found
