"""All policies: one file each in this folder, found by looking.

A new policy is a file here with one class: a subclass of `Policy` with a `name`, a `Settings` dataclass and the two
methods. Nothing else has to be changed: `[extender] policy = "NAME"` chooses it, `[extender.policies.NAME]` is checked
against its Settings, `carico extender --policies` lists it. Files that begin with an underscore are no policies.
"""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from carico_agent.extender.policy import Policy
from carico_agent.lib.declare import BadSettings, build, example_table


def find() -> dict[str, type[Policy[Any]]]:
    """Every policy by its name."""
    found: dict[str, type[Policy[Any]]] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")):
        loaded = importlib.import_module(f"{__name__}.{module}")
        for workload in vars(loaded).values():
            if inspect.isclass(workload) and issubclass(workload, Policy) and workload.__module__ == loaded.__name__:
                found[workload.name] = workload
    return found


def load(name: str, tables: Mapping[str, Mapping[str, Any]]) -> Policy[Any]:
    """The policy `name` with its table out of `tables`; all tables are checked. Raises BadSettings with every error."""
    known, errors = find(), list[str]()
    if name not in known:
        errors.append(f"extender.policy: {name!r} is not one of {', '.join(known)}{_suggestion(name, known)}")
    made: dict[str, Any] = {name: None}
    for given, table in tables.items():
        if given not in known:
            errors.append(f"extender.policies.{given}: no such policy{_suggestion(given, known)}")
            continue
        try:
            made[given] = build(known[given].Settings, table, f"extender.policies.{given}")
        except BadSettings as bad:
            errors += bad.errors
    if errors:
        raise BadSettings(errors)
    return known[name](made[name])


def describe() -> str:
    """Every policy with its settings, as commented TOML."""
    return "\n".join(
        f"# {name}: {(inspect.getdoc(workload) or '').splitlines()[0]}\n"
        + example_table(f"extender.policies.{name}", workload.Settings)
        for name, workload in find().items()
    )


def _suggestion(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
