"""What setup.cfg says is what the tree holds, and every plugin folder is complete."""

import ast
import configparser
import importlib
import re
from pathlib import Path

import pytest
from setuptools import find_packages

from carico_agent.node.plugin_host import knobs
from carico_agent.plugin_api import Plugin
from carico_agent.settings import build

from .sample import sample

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py"))


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_listed():
    listed = setup_cfg()["options"]["packages"].split()
    found = find_packages(str(ROOT), include=["carico_agent", "carico_agent.*"])
    plugins = ["carico_plugins", *(f"carico_plugins.{name}" for name in NAMES)]
    assert sorted(listed) == sorted([*found, *plugins, "carico_units"])


def test_every_plugin_is_an_entry_point():
    points = setup_cfg()["options.entry_points"]["carico_agent.plugins"].strip().splitlines()
    assert sorted(points) == [f"{name} = carico_plugins.{name}:Plugin" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_is_a_folder(name):
    folder = ROOT / "plugins" / name
    assert {"README.md", "config.toml", f"test_{name}.py"} <= {path.name for path in folder.iterdir()}
    kind = importlib.import_module(f"plugins.{name}").Plugin
    assert issubclass(kind, Plugin) and kind.name == name
    kind(build(kind.Settings, {}, f"plugins.settings.{name}"))


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_configuration_is_printed_from_the_declaration(name):
    """To write it anew: python -m tests.node.plugin_host.sample NAME"""
    assert (ROOT / "plugins" / name / "config.toml").read_text() == sample(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_plugin_is_in_the_list_of_plugins(name):
    assert f"| `{name}` |" in (ROOT / "docs/plugins.md").read_text()


def test_the_manual_names_every_file_that_can_be_written():
    (line,) = re.findall(
        r"^Files that can be written: (.*)\.$", (ROOT / "plugins/template/README.md").read_text(), re.M
    )
    settings, actions = (set(part.split(", ")) for part in line.split("; once: "))
    assert settings == {key for key in knobs.KNOBS if knobs.is_setting(key)}
    assert actions == {key for key in knobs.KNOBS if knobs.is_action(key)}


CODE = [path for path in (ROOT / "plugins").rglob("*.py") if not path.name.startswith(("test_", "conftest"))]


@pytest.mark.parametrize("path", CODE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_plugins_import_plugin_api_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            imported |= {f"{module}.{alias.name}" for alias in node.names} if module == "carico_agent" else {module}
    assert {name for name in imported if name.startswith("carico")} <= {"carico_agent.plugin_api"}
