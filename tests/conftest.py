"""What was not run is said loudly and by name: a test that is only left out in silence has failed."""

from collections.abc import Generator

import pytest

NOT_RUN = "NOT RUN: "
"""How the reason begins of every test that is left out; it goes on with what is not here, and what that means."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is left out for a reason that is no sentence of ours."""
    report = yield
    _loudly(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a whole file that is left out so."""
    report = yield
    _loudly(report)
    return report


def _loudly(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(NOT_RUN):
            report.outcome = "failed"
            report.longrepr = f"left out in silence ({reason}): a reason begins with {NOT_RUN!r}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List every test that was not run, below the reason why."""
    names: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        names.setdefault(reason, []).append(report.nodeid)
    for reason, tests in names.items():
        terminalreporter.section(reason.partition(" (")[0].partition(",")[0], red=True)
        terminalreporter.write_line(reason)
        for test in tests:
            terminalreporter.write_line(f"  {test}")
