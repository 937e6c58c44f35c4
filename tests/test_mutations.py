"""The list of mutations is about this tree: every line is there once, and the page shows the list. Random ones compile,
and are the same again."""

import random

import pytest

from tests.mutations import MUTATIONS, TREE, Mutation, page
from tests.random_mutations import Change, changes, products, related, sample


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.path}: {m.harm}")
def test_the_line_is_there_and_its_test_too(mutation: Mutation) -> None:
    text = (TREE / mutation.path).read_text()
    assert text.count(mutation.old) == 1
    compile(text.replace(mutation.old, mutation.new), mutation.path, "exec")
    assert (TREE / mutation.test).exists()


def test_the_page_shows_the_list() -> None:
    assert (TREE / "docs/development/mutations.md").read_text() == page(), "python -m tests.mutations --page renews it"


@pytest.mark.parametrize("package", products())
def test_changes_at_random_compile_and_differ(package: str) -> None:
    made = [change for file in products()[package] for change in changes(file, str(file.relative_to(TREE)))]
    assert len(made) > 10  # cli is small: it only dispatches
    for change in random.Random(1).sample(made, min(20, len(made))):
        text = (TREE / change.path).read_text()
        assert change.applied(text) != text
        compile(change.applied(text), change.path, "exec")


def test_every_package_has_its_sample_and_related_tests() -> None:
    first, again = ([sample(files, 2, random.Random(7)) for files in products().values()] for _ in range(2))
    assert first == again and all(len(one) == 2 for one in first)
    assert related("carico_agent/lib/net/handshake.py")[1] == "tests/lib/net/test_handshake.py"
    assert related("plugins/throttling/diagnosis.py")[1:] != ()


def test_a_change_is_made_where_it_was_found() -> None:
    change = Change("x.py", 1, "a < b", "(a <= b)", 7, 12)
    assert change.applied("return a < b  # é") == "return (a <= b)  # é"
