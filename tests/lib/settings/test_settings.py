"""Settings: strict, all errors at once, documented where they are declared."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent import settings
from carico_agent.core.estimators import ESTIMATORS, HALT_S
from carico_agent.lib.declare import field_docs
from carico_agent.node.settings.node import METHODS

ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"sampling": {"perod_s": 1}}, "sampling.perod_s: unknown key, did you mean period_s?"),
    ({"agent": {}}, "agent: unknown key; known are "),  # it was: did you mean page?
    ({"sampling": {"period_s": "fast"}}, "sampling.period_s: a number is expected, not 'fast'"),
    ({"sampling": {"period_s": True}}, "sampling.period_s: a number is expected, not True"),
    ({"sampling": {"period_s": float("nan")}}, "sampling.period_s: a number is expected, not nan"),
    ({"sampling": {"niceness": 1.5}}, "sampling.niceness: a whole number is expected, not 1.5"),
    ({"sampling": 3}, "sampling: a table is expected, write [sampling]"),
    ({"model": {"estimator": "papper-dual"}}, "did you mean paper-dual?"),
    ({"model": {"estimator": "paper-dual"}}, "model.estimator: paper-dual belongs to the method carico and changes"),
    ({"model": {"method": "carico", "estimator": "resource-space"}}, "belongs to the method measured"),
    ({"model": {"forget": 0.2}}, 'model.forget: changes nothing with method = "measured"'),
    ({"model": {"method": "carico", "service_cpu_limit": 0.5}}, "model.service_cpu_limit: changes nothing"),
    ({"federation": {"weight": 0.9}}, "federation.weight: changes nothing"),
    ({"model": {"method": "carico"}, "pods": {"measure_period_s": 9.0}}, "pods.measure_period_s: changes nothing"),
    ({"model": {"limits": {"cpu": "x"}}}, "model.limits: cpu: a number is expected"),
    ({"model": {"limits": {"memory": 1.5}}}, "model.limits.memory: 1.5 is not in (0, 1]"),
    ({"plane": {"components": {"kubelet": "http://x"}}}, "plane.components.kubelet: etcd, kube-scheduler"),
    ({"xyzzy": {}}, "xyzzy: unknown key; known are"),
]


@pytest.mark.parametrize("table,message", ERRORS, ids=[message for _, message in ERRORS])
def test_errors_have_a_path_and_a_suggestion(table: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.BadSettings) as bad:
        settings.parse(table)
    assert message in str(bad.value)


def test_all_errors_come_at_once() -> None:
    with pytest.raises(settings.BadSettings) as bad:
        settings.parse({"sampling": {"a": 1, "b": 2}, "socket": {"ttl_s": 0}})
    assert len(bad.value.errors) == 3


def test_the_example_is_the_defaults() -> None:
    assert settings.parse(tomllib.loads(settings.example())) == settings.Settings()


def test_every_setting_is_documented() -> None:
    for section in fields(settings.Settings):
        kind = get_type_hints(settings.Settings)[section.name]
        assert set(field_docs(kind)) == {item.name for item in fields(kind)}


@pytest.mark.parametrize("content", [b"[", b"\xff\xfe", b"a = ", b"[sampling]\n[sampling]\n"])
def test_what_is_not_toml_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(settings.BadSettings, match="not TOML"):
        settings.load(tmp_path / "c.toml")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(settings.BadSettings, match="No such file"):
        settings.load(tmp_path / "none.toml")


def test_flags_override_only_what_was_given() -> None:
    changed = settings.override(settings.Settings(), "socket", path="/x", group=None)
    assert changed.socket.path == "/x"
    assert changed.socket.group == ""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([item.name for item in fields(settings.Settings)]) | st.text(max_size=8)


@given(st.dictionaries(names, values, max_size=4))
def test_any_table_is_parsed_or_refused(table: dict[str, Any]) -> None:
    try:
        settings.parse(table)
    except settings.BadSettings as bad:
        assert bad.errors


def test_every_estimator_can_be_chosen() -> None:
    """The names stand in the settings once more, so that reading a configuration does not load numpy."""
    assert list(get_args(get_type_hints(settings.ModelSettings)["estimator"])) == ["", *ESTIMATORS]
    assert settings.CARICO_CHURN_S == HALT_S
    by_method = {name: method for method, names in METHODS.items() for name in names}
    assert by_method == {name: one.method for name, one in ESTIMATORS.items()}
