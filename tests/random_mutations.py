"""Lines changed at random: how many of them would no test notice? The rate of survivors, per product.

`make mutations` runs it after the list by hand (tests/mutations.py). `python -m tests.random_mutations --samples 5
--seed 3 carico_agent/lib/net` looks at one package only. Each change is made in a copy of the tree and judged by the tests
that name the changed module, doctests included, and no others: with the whole suite one change would take minutes.

Why no mutation tool: mutmut and cosmic-ray run the whole suite per change, or need a coverage run of it to choose from,
and sample over the tree, so that a small product gets no sample at all.
"""

import argparse
import ast
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutations import FAILED, TREE, copied, environment

MAX_TESTS = 6
"""Test files per change: those that name the module most often."""
LONGEST_S = 240.0
HUNG = -1
GOAL_RATIO = 0.1
"""Survivors among all changes that are aimed at, at most."""
NOT_HERE = ("proto", "static")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Change:
    """One node of a file, written otherwise."""

    path: str
    line: int
    old: str
    new: str
    start: int
    end: int

    def applied(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old.splitlines()[0][:60]} → {self.new.splitlines()[0][:60]}"


def otherwise(node: ast.AST) -> ast.AST | None:
    """The node with its meaning changed; None: leave it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            return ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp() if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            return ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.BoolOp():
            return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            return ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) if "log." not in ast.unparse(node):
            return ast.Pass()
    return None


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Those that run. Not annotations, defaults of documentation, texts and what only names things."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params") or isinstance(
            tree, ast.JoinedStr
        ):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and not isinstance(one, ast.Import | ast.ImportFrom):
                yield one
                yield from _nodes(one)


def changes(path: Path, name: str) -> list[Change]:
    """All that can be made in one file."""
    text = path.read_text()
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    tree = ast.parse(text)
    declared = {id(one) for one in _declared(tree)}
    for node in _nodes(tree):
        if id(node) in declared:
            continue
        if not isinstance(node, ast.expr | ast.stmt) or (new := otherwise(node)) is None:
            continue
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        written = ast.unparse(ast.fix_missing_locations(new))
        written = f"({written})" if isinstance(new, ast.expr) else written
        found.append(Change(name, node.lineno, text.encode()[start:end].decode(), written, start, end))
    return found


def _declared(tree: ast.Module) -> Iterator[ast.AST]:
    """Constants of modules and fields of classes: 60 s or 61 s is a choice, and both are right."""
    for block in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        for one in block.body:
            if isinstance(one, ast.Assign | ast.AnnAssign):
                yield from ast.walk(one)


def products(tree: Path = TREE) -> dict[str, list[Path]]:
    """Package → its files, as the tree has them."""
    found: dict[str, list[Path]] = {}
    for package in (*sorted((tree / "carico_agent").iterdir()), tree / "plugins"):
        if package.is_dir() and (files := [file for file in sorted(package.rglob("*.py")) if _counts(file)]):
            found[str(package.relative_to(tree))] = files
    return found


def _counts(file: Path) -> bool:
    tested = file.name.startswith(("test_", "conftest")) or file.name == "__init__.py"
    return not tested and not any(part in NOT_HERE for part in file.parts)


def sample(files: list[Path], count: int, chance: random.Random) -> list[Change]:
    """A line at random, and one change of it at random: long files and long lines get no more than their lines."""
    lines: dict[tuple[str, int], list[Change]] = defaultdict(list)
    for file in files:
        for change in changes(file, str(file.relative_to(TREE))):
            lines[change.path, change.line].append(change)
    chosen = chance.sample(sorted(lines), min(count, len(lines)))
    return [chance.choice(lines[one]) for one in chosen]


@cache
def test_texts() -> dict[str, str]:
    files = [*sorted((TREE / "tests").rglob("test_*.py")), *sorted((TREE / "plugins").rglob("test_*.py"))]
    return {str(file.relative_to(TREE)): file.read_text() for file in files}


def related(path: str) -> tuple[str, ...]:
    """The tests of a module: itself for its doctests, and the files that name it most."""
    module = path.removesuffix(".py").replace("/", ".").replace("plugins.", "carico_plugins.", 1)
    package, _, name = module.rpartition(".")
    ranked = []
    for test, text in test_texts().items():
        named = 3 * text.count(f"{module} import") + text.count(f"{package} import {name}") + text.count(f"{module}.")
        if named and "mark.kube" not in text:
            ranked.append((-named, test))
    beside = Path("tests") / Path(path).relative_to(Path(path).parts[0]).with_name(f"test_{name}.py")
    first = [str(beside)] if (TREE / beside).exists() else []
    near = [test for test in test_texts() if Path(test).parent in (beside.parent, Path(path).parent)]
    found = dict.fromkeys([*first, *(test for _, test in sorted(ranked)), *(near if len(ranked) < 2 else ())])
    return (path, *list(found)[:MAX_TESTS])


def fails(tree: Path, tests: tuple[str, ...]) -> int:
    """pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not kube", "-p", "no:cacheprovider"]
    command += ["--doctest-modules", *tests]
    try:
        return subprocess.run(
            command,
            cwd=tree,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_S,
        ).returncode
    except subprocess.TimeoutExpired:
        return HUNG


def judge(tree: Path, change: Change, sound: dict[tuple[str, ...], bool]) -> str:
    """noticed, SURVIVED, or that the tests fail without any change."""
    tests, file = related(change.path), tree / change.path
    if tests not in sound:
        sound[tests] = fails(tree, tests) in (0, 5)
    if not sound[tests]:
        return "unusable"
    text = file.read_text()
    try:
        file.write_text(change.applied(text))
        return "noticed" if fails(tree, tests) in (FAILED, 2, 4, HUNG) else "SURVIVED"
    finally:
        file.write_text(text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--samples", type=int, default=5, help="changes per package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the changes and the tests, run nothing")
    given = parser.parse_args(arguments)
    chosen = {
        name: sample(files, given.samples, random.Random(f"{given.seed} {name}"))
        for name, files in products().items()
        if not given.packages or name in given.packages
    }
    if given.list:
        for change in (change for all_ in chosen.values() for change in all_):
            print(change, "|", *related(change.path))
        return 0
    return report(chosen)


def report(chosen: dict[str, list[Change]]) -> int:
    survivors, judged = [], 0
    with tempfile.TemporaryDirectory(prefix="carico-mutations-") as folder:
        tree, sound = copied(Path(folder)), dict[tuple[str, ...], bool]()
        for package, made in chosen.items():
            verdicts = []
            for change in made:
                verdicts.append(judge(tree, change, sound))
                print(f"{verdicts[-1]:9}", change, flush=True)
                survivors += [change] if verdicts[-1] == "SURVIVED" else []
            usable = [one for one in verdicts if one != "unusable"]
            judged += len(usable)
            print(f"{package}: {usable.count('SURVIVED')} of {len(usable)} survive", flush=True)
    ratio = len(survivors) / max(1, judged)
    print(f"{len(survivors)} of {judged} changes survive, {ratio:.0%}; the goal is {GOAL_RATIO:.0%}")
    print(*survivors, sep="\n")
    return int(ratio > GOAL_RATIO)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
