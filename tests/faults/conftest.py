"""At the end of a run: how many cases there were."""

import pytest

from tests.faults.tally import tried


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if tried:
        terminalreporter.write_line(", ".join(f"{count:,} {what}" for what, count in sorted(tried.items())) + " tried")
