"""Costliest users from an audit log."""

import json

from carico_agent.plane import audit


def line(user: str, seconds: float, verb: str = "list", stage: str = "ResponseComplete") -> str:
    return json.dumps(
        {
            "stage": stage,
            "verb": verb,
            "user": {"username": user},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": f"2026-01-01T00:00:{seconds:09.6f}Z",
        }
    )


def test_by_user() -> None:
    lines = [line("eve", 3), line("bob", 1), line("eve", 2), line("eve", 50, "watch"), line("eve", 9, stage="Panic")]
    found = audit.costliest(audit.by_user([*lines, "", "nonsense", "{}", '{"stage": "ResponseComplete"}', "[]"]))
    assert [(one["user"], one["requests"], round(one["share"], 3)) for one in found] == [
        ("eve", 2, 0.833),
        ("bob", 1, 0.167),
    ]


def test_users_without_end_stay_bounded() -> None:
    found = audit.by_user(line(f"user-{n}", 1) for n in range(audit.MAX_USERS + 50))
    assert len(found) == audit.MAX_USERS + 1
    assert found["other"].requests == 50
