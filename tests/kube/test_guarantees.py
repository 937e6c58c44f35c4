"""Both pages have the table of guarantees.py, and every test that it names is there."""

import re

import pytest

from tests.conftest import TREE
from tests.kube.guarantees import COMBINATIONS, table


@pytest.mark.parametrize("page", ["docs/kubernetes.md", "deploy/README.md"])
def test_the_page_has_the_table(page: str) -> None:
    assert table() in (TREE / page).read_text(), "python -m tests.kube.guarantees prints it"


@pytest.mark.parametrize("shown_by", sorted({name for one in COMBINATIONS for name in one.shown_by}))
def test_what_the_table_says_is_shown_by_a_test(shown_by: str) -> None:
    file, _, name = shown_by.partition("::")
    text = (TREE / "tests/kube" / file).read_text()
    assert re.search(rf"^(async )?def {name}\(", text, re.M)
