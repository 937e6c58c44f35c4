"""From TOML tables to frozen dataclasses: strict, all errors at once, documented where declared.

A section is a frozen dataclass; the string below each field is its documentation, `Annotated[float, Range(…)]` its
bounds. Nothing unknown is accepted.
"""

import ast
import difflib
import inspect
import textwrap
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from carico_agent.plugin_api.declare import Range


class BadSettings(ValueError):
    """The configuration has errors; all of them, one per line."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def build(kind: type, table: Mapping[str, Any], path: str = "") -> Any:
    """A dataclass (ours, or a plugin's) from the TOML table at `path`; raises BadSettings with every error."""
    made, errors = build_rest(kind, table, path)
    if errors:
        raise BadSettings(errors)
    return made


def build_rest(kind: type, table: Mapping[str, Any], path: str = "") -> tuple[Any, list[str]]:
    """As `build`, with what is right in the table, defaults for the rest, and every error: more can be checked."""
    errors: list[str] = []
    return _section(kind, table, f"{path}." if path else "", errors), errors


def _section(kind: type, table: Mapping[str, Any], path: str, errors: list[str]) -> Any:
    """Build one dataclass from one TOML table, noting every error."""
    hints = get_type_hints(kind, include_extras=True)
    known = {f.name: f for f in fields(kind)}
    values = {}
    for key, value in table.items():
        where = f"{path}{key}"
        if key not in known:
            errors.append(f"{where}: unknown key{suggest(key, known)}")
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


def suggest(key: str, known: Iterable[str]) -> str:
    """What was meant, or else all that is known; to be put behind a complaint."""
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
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
        if problem or not isinstance(bounds, Range):
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


def example_table(name: str, kind: type, only: Collection[str] = ()) -> str:
    """One section as commented TOML with its defaults; also prints the plugins' sample configurations. `only`: these
    settings of it; empty: all."""
    lines = [*_comment(inspect.getdoc(kind) or ""), f"[{name}]"]
    hints, docs, defaults = get_type_hints(kind, include_extras=True), field_docs(kind), kind()
    for item in fields(kind):
        if only and item.name not in only:
            continue
        tables = hints[item.name] == dict[str, dict[str, Any]]  # written so that [name.item.TABLE] may follow
        line = f"[{name}.{item.name}]" if tables else f"{item.name} = {_toml(getattr(defaults, item.name))}"
        lines += [*_comment(docs[item.name] + _bounds_text(hints[item.name])), line]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 110)]


def _bounds_text(hint: Any) -> str:
    if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Range):
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
def field_docs(kind: type) -> dict[str, str]:
    """The string literal below each field, read from the source; of inherited fields, too."""
    docs = {name: text for base in kind.__bases__ if is_dataclass(base) for name, text in field_docs(base).items()}
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            assert isinstance(text, ast.Constant), f"{kind.__name__}.{statement.target.id} has no documentation"
            docs[statement.target.id] = str(text.value)
    return docs
