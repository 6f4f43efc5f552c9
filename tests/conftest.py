"""What every run of the tests has in common.

- `make test` leaves the tests marked `thorough` to `make test-all`, and asks properties fewer examples.
- What was not run is said loudly and by name: a test that is left out in silence has failed. So has one that is left
  out for a part that has to be there: `make test REQUIRE_ALL=1 ALLOW_NOT_RUN=pulumi`.
- At the end stand the slowest tests and the seconds of each folder.
"""

from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath
from typing import Any

import pytest

from .counts import choose_counts
from .order import Units, place

NOT_RUN = "NOT RUN: "
"""How the reason begins of every test that is left out; it goes on with what is not here, and what that means."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run have the thorough tests too, and demand that nothing is left out."""
    parser.addoption("--thorough", action="store_true", help="run the thorough tests too, with all examples")
    group = parser.getgroup("tests that are not run")
    group.addoption("--require-all", action="store_true", help="fail tests that are left out, whatever is not here")
    group.addoption(
        "--allow-not-run", default="", metavar="WORDS", help="the same, but for parts whose names hold one of the words"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Decide about counts before a test module is imported."""
    choose_counts(thorough=config.getoption("thorough"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(), "times")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Units | None:
    """Keep the tests that share servers in one process."""
    return Units(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave thorough tests to `make test-all`; begin with what takes longest, where processes share the tests."""
    if not config.getoption("thorough"):
        later = [item for item in items if item.get_closest_marker("thorough")]
        if later:
            config.hook.pytest_deselected(items=later)
            items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is left out for a reason that is no sentence of ours, or is none in this run."""
    report = yield
    _loudly(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a whole file that is left out so."""
    report = yield
    _loudly(report, collector.config)
    return report


def _loudly(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(NOT_RUN):
        report.outcome = "failed"
        report.longrepr = f"left out in silence ({reason}): a reason begins with {NOT_RUN!r}"
    elif not _may_be_left_out(_what(reason), config):
        report.outcome = "failed"
        report.longrepr = f"left out, and this run allows none to be: {reason}"


def _may_be_left_out(what: str, config: pytest.Config) -> bool:
    words = config.getoption("allow_not_run").upper().split()
    return not (words or config.getoption("require_all")) or any(word in what.upper() for word in words)


def _what(reason: str) -> str:
    """Return what is not here, without why."""
    return reason.partition(" (")[0].partition(",")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List every test that was not run, below the reason why."""
    names: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        names.setdefault(reason, []).append(report.nodeid)
    for reason, tests in names.items():
        terminalreporter.section(_what(reason), red=True)
        terminalreporter.write_line(reason)
        for test in tests:
            terminalreporter.write_line(f"  {test}")


class Times:
    """Adds up the seconds of each test and folder, and prints them at the end."""

    SLOWEST = 20
    LEAST_SECONDS = 1.0

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a test took, its fixtures included."""
        self.seconds[report.nodeid] += report.duration  # type: ignore[assignment]  # a Counter may hold floats

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the slowest tests, and the folders, where a run was long enough to ask."""
        if sum(self.seconds.values()) < self.SLOWEST:
            return
        folders: Counter[str] = Counter()
        for test, seconds in self.seconds.items():
            folders[str(PurePosixPath(test.partition("::")[0]).parent)] += seconds
        terminalreporter.section("seconds of the slowest tests, fixtures included")
        for test, seconds in self.seconds.most_common(self.SLOWEST):
            terminalreporter.write_line(f"{seconds:7.1f}  {test}")
        terminalreporter.section("seconds of each folder, added up over all processes")
        for folder, seconds in folders.most_common():
            if seconds >= self.LEAST_SECONDS:
                terminalreporter.write_line(f"{seconds:7.1f}  {folder}")
