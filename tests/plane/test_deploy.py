"""deploy/plane without a control plane: its configuration is valid and its rights are the least."""

import tomllib
from pathlib import Path

import pytest
import yaml

from carico_agent.cli import parser
from carico_agent.plane.daemon import listen_address
from carico_agent.settings import parse
from tests.conftest import TREE

FOLDER = TREE / "deploy/plane"


def documents(name: str) -> list[dict]:
    return [one for one in yaml.safe_load_all((FOLDER / name).read_text()) if one]


def test_configuration_and_arguments() -> None:
    found = {one["kind"]: one for one in documents("20-plane.yaml")}
    config, deployment = found["ConfigMap"], found["Deployment"]
    settings = parse(tomllib.loads(config["data"]["config.toml"]))
    assert settings.plane.seats == "recommend", "writing is a decision of whoever installs it"
    assert listen_address(settings.plane.listen, settings.plane.allow_plaintext)[1] == 9765
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert parser().parse_args(container["args"]).serve
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.state_path) in mounts


def test_rights_are_the_least() -> None:
    role = next(one for one in documents("10-rbac.yaml") if one["kind"] == "ClusterRole")
    rights = {
        (resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for resource in rule.get("resources", rule.get("nonResourceURLs"))
        for verb in rule["verbs"]
    }
    levels = "prioritylevelconfigurations"
    assert rights == {
        ("/metrics", "get", ()),
        *((levels, verb, ()) for verb in ("get", "list", "watch", "create")),
        *((levels, verb, ("carico-reserve",)) for verb in ("patch", "delete")),
        ("clusterroles", "get", ("carico-plane",)),
    }


def test_kustomization_has_every_file() -> None:
    (kustomization,) = documents("kustomization.yaml")
    assert kustomization["resources"] == sorted(path.name for path in FOLDER.glob("[0-9]*.yaml"))


@pytest.mark.parametrize("listen", ["0.0.0.0:9765", "nonsense", "127.0.0.1", "127.0.0.1:x"])
def test_addresses_that_are_refused(listen: str) -> None:
    with pytest.raises(ValueError, match=r"plane\.listen"):
        listen_address(listen)


def test_the_drop_in_names_the_unit() -> None:
    text = Path(FOLDER / "10-control-plane.conf").read_text()
    assert "carico-plane.service.d" in text and (TREE / "systemd/carico-plane.service").exists()
