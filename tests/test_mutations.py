"""The list of mutations is about this tree: every line is there once, and the page shows the list."""

import pytest

from tests.mutations import MUTATIONS, TREE, Mutation, page


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.path}: {m.harm}")
def test_the_line_is_there_and_its_test_too(mutation: Mutation) -> None:
    text = (TREE / mutation.path).read_text()
    assert text.count(mutation.old) == 1
    compile(text.replace(mutation.old, mutation.new), mutation.path, "exec")
    assert (TREE / mutation.test).exists()


def test_the_page_shows_the_list() -> None:
    assert (TREE / "docs/mutations.md").read_text() == page(), "python -m tests.mutations --page renews it"
