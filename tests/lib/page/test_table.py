"""Without scripts: the same numbers as tables, with everything escaped."""

from html.parser import HTMLParser

from carico_agent.lib.page.table import plain_page
from carico_agent.node.publish.status import Status, as_json
from lab.support.sample_node import HOSTILE, SampleNode


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(status: Status, age_s: float = 0.5) -> Tags:
    tags = Tags()
    tags.feed(plain_page(as_json(status) | {"age_s": age_s, "ttl_s": 5.0}))
    return tags


def test_all_numbers_are_there() -> None:
    status = SampleNode().status(1e9)
    text = parsed(status).text
    assert f"{status.pod_capacity:.1f}" in text
    assert f"{status.low:.1f} to {status.high:.1f}" in text
    assert {"measured", "cpu", "shop/web", "batch/thumbnails"} <= set(text)
    assert f"{status.usage['cpu']:.1%}" in text


def test_hostile_names_are_text_and_nothing_else() -> None:
    found = parsed(SampleNode(hostile=True).status(1e9))
    assert found.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert f"shop/web{HOSTILE}" in found.text


def test_an_old_number_is_called_void() -> None:
    assert "void after 5 s" in " ".join(parsed(SampleNode().status(1e9), 60.0).text)


def test_unknown_numbers_and_no_status() -> None:
    assert "unknown to unknown" in parsed(Status()).text
    assert "no agent &lt;here&gt;" in plain_page({}, "no agent <here>")
