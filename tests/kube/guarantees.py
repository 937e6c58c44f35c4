"""What is guaranteed with which parts: the table of docs/kubernetes.md and deploy/README.md, and the tests that show
it.

`python -m tests.kube.guarantees` prints it. tests/kube/test_guarantees.py compares both pages, and looks for the tests.
"""

from dataclasses import dataclass

YES, NO, UNTRIED = "yes", "no", "not tried"

HEAD = (
    "Pods ask for `carico.dev/pods`",
    "`admission/bindings.yaml`",
    "extender (bind)",
    "`ignorable`",
    "never beyond a number that stands still",
    "nor while it falls",
    "a rise is used at once",
    "gangs: all or none",
    "questions while Pods wait",
)


@dataclass(frozen=True)
class Combination:
    """One row. The first four say what is there, the others what that gives; `shown_by`: file::test."""

    resource: str
    webhook: str
    extender: str
    ignorable: str
    still: str
    falls: str
    rises: str
    gangs: str
    questions: str
    shown_by: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        have = (self.resource, self.webhook, self.extender, self.ignorable)
        return (*have, self.still, self.falls, self.rises, self.gangs, self.questions)


LATE = "a binding under way may be late; the kubelet refuses it"
EACH = "each Pod at every change of a Node"
UNSAFE = "**no**: it ignores refusals, and the extender says so"

IGNORABLE = (
    "test_ignorable.py::test_with_the_webhook_a_refused_binding_stays_refused",
    "test_ignorable.py::test_with_the_webhook_a_rise_is_used_at_once",
    "test_gangs.py::test_all_members_or_none",
    "test_prompt.py::test_two_hundred_waiting_pods_do_not_hold_up_the_scheduler",
)

COMBINATIONS = (
    Combination(
        YES,
        NO,
        NO,
        "-",
        YES,
        LATE,
        YES,
        YES,
        "none",
        (
            "test_burst.py::test_the_resource_alone",
            "test_prompt.py::test_the_resource_alone_is_used_right_after_a_rise",
            "test_gangs.py::test_all_members_or_none",
        ),
    ),
    Combination(
        YES,
        YES,
        NO,
        "-",
        YES,
        YES,
        YES,
        YES,
        "none",
        (
            "test_burst.py::test_an_unmodified_scheduler_and_the_webhook",
            "test_prompt.py::test_the_webhook_admits_right_after_a_rise",
            "test_gangs.py::test_all_members_or_none",
        ),
    ),
    Combination(
        YES,
        NO,
        YES,
        "false",
        YES,
        YES,
        YES,
        YES,
        "none",
        (
            "test_burst.py::test_the_extender_and_the_resource",
            "test_prompt.py::test_the_extender_binds_right_after_a_rise",
            "test_prompt.py::test_two_hundred_waiting_pods_do_not_hold_up_the_scheduler",
            "test_gangs.py::test_all_members_or_none",
        ),
    ),
    Combination(
        YES,
        YES,
        YES,
        "true",
        YES,
        YES,
        YES,
        YES,
        "none",
        IGNORABLE,
    ),
    Combination(
        NO,
        NO,
        YES,
        "false",
        YES,
        YES,
        YES,
        YES,
        EACH,
        (
            "test_burst.py::test_the_extender_alone",
            "test_burst.py::test_two_replicas",
            "test_prompt.py::test_the_extender_alone_binds_right_after_a_rise",
            "test_prompt.py::test_an_extender_whose_watch_is_behind",
            "test_prompt.py::test_two_hundred_waiting_pods_do_not_hold_up_the_scheduler",
            "test_gangs.py::test_all_members_or_none",
        ),
    ),
    Combination(
        NO,
        YES,
        YES,
        "true",
        YES,
        YES,
        YES,
        YES,
        EACH,
        IGNORABLE,
    ),
    Combination(
        "either",
        NO,
        YES,
        "true",
        UNSAFE,
        UNSAFE,
        UNTRIED,
        UNTRIED,
        "as above",
        ("test_ignorable.py::test_without_the_webhook_the_extender_says_that_it_is_overruled",),
    ),
)

BEGIN, END = "<!-- guarantees: python -m tests.kube.guarantees -->", "<!-- end of guarantees -->"


def table() -> str:
    """As Markdown, with the lines around it by which it is found."""
    rows = [HEAD, ("---",) * len(HEAD), *(one.cells for one in COMBINATIONS)]
    return "\n".join([BEGIN, *(f"| {' | '.join(row)} |" for row in rows), END])


if __name__ == "__main__":
    print(table())
