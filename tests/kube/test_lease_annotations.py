"""Annotations of a placement Lease that somebody else wrote."""

import pytest

from carico_agent.lib.kube.placement_lease import Acknowledgement, Offer, lease_record

MALFORMED = (
    "",
    "{",
    "[]",
    "7",
    *(
        f'{{"token":"t","leader":"x","term":1,"pods":{pods}}}'
        for pods in (
            '{"u":1}',
            '{"u":[1]}',
            '{"u":[1,1e999]}',
            '{"u":[1e999,1]}',
            '{"u":[1,-1]}',
            '{"u":["x",1]}',
            f'{{"u":[1,{"9" * 5000}]}}',
            "7",
        )
    ),
    '{"token":"t","leader":"x","term":"y","pods":{}}',
    "[" * 100_000,
    '{"time":"x"}',
    '{"time":"2024-01-01T00:00:00Z","ttl_s":1e999,"places":-1,"resource":2}',
    '{"time":"2024-01-01T00:00:00Z","ttl_s":9,"places":"8","resource":2}',
)


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_annotations_count_as_none(text: str) -> None:
    notes = {"carico.dev/placed": text, "carico.dev/offer": text}
    read = lease_record({"metadata": {"resourceVersion": "7", "annotations": notes}})
    assert (read.version, read.offered, read.acknowledged) == ("7", Offer(), Acknowledgement())
