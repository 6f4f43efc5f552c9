"""Hooks for every run of the tests.

- `make test` leaves the tests marked `thorough` to `make test-all`, and gives properties fewer examples.
- The summary names every test that was not run. A test that is skipped without a reason of ours fails. So does a test
  that is skipped because of a required part: `make test REQUIRE_ALL=1 ALLOW_NOT_RUN=pulumi`.
"""

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest

from .counts import choose_counts
from .order import Units, place

NOT_RUN = "NOT RUN: "
"""The prefix of every reason for a skipped test. After it come the missing part and the consequence."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run the thorough tests too, with all examples")
    group = parser.getgroup("tests that are not run")
    group.addoption("--require-all", action="store_true", help="fail skipped tests, whatever is missing")
    group.addoption(
        "--allow-not-run", default="", metavar="WORDS", help="the same, except for parts with one of the words"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the numbers of examples before pytest imports a test module."""
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it. Output of commands has the width of a file.
    choose_counts(thorough=config.getoption("thorough"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all tests without garbage collections. Later collections skip the imported objects, which stay anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Units | None:
    """Keep the tests that share servers in one process."""
    return Units(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect thorough tests. If several processes share the tests, start with the longest."""
    if not config.getoption("thorough"):
        later = [item for item in items if item.get_closest_marker("thorough")]
        if later:
            config.hook.pytest_deselected(items=later)
            items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test if its reason has no prefix of ours, or is not allowed in this run."""
    report = yield
    _loudly(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a whole file that is skipped in such a way."""
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
    return reason.partition(" (")[0].partition(",")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    names: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        names.setdefault(reason, []).append(report.nodeid)
    for reason, tests in names.items():
        terminalreporter.section(_what(reason), red=True)
        terminalreporter.write_line(reason)
        for test in tests:
            terminalreporter.write_line(f"  {test}")
