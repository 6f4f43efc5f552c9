"""One node with one environment on it, for all tests and all of pytest's processes."""

import os
from collections.abc import Generator, Iterator
from functools import cache

import pytest

from .environment import Environment, made_once
from .machine import Machine, machine, why_not

_why_not = cache(why_not)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests of a node that cannot run here.

    Here and not in a fixture: skipped at one place, for one reason, they are one line of pytest's summary, with their
    number, under pytest-xdist too.
    """
    if "node" in getattr(item, "fixturenames", ()) and (reason := _why_not()):
        pytest.skip(
            f"NOT RUN: NO REAL NODE CAN RUN HERE ({reason}), so that many tests of kubelet and pods did not run."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how the pods stood when a test failed: afterwards there is nobody to ask."""
    report = yield
    used = getattr(item, "funcargs", {})
    shared = used["environment"].machine if "environment" in used else used.get("node")
    if report.failed and isinstance(shared, Machine):
        for what in ("pods", "events"):
            said = shared.kubectl("get", what, "--all-namespaces", check=False)
            report.sections.append((what, said.stdout[-20_000:] + said.stderr))
    return report


@pytest.fixture(scope="package")
def node(request: pytest.FixtureRequest) -> Iterator[Machine]:
    worker = getattr(request.config, "workerinput", None)
    with machine(worker["testrunuid"][:12] if worker else f"run-{os.getpid()}") as shared:
        yield shared


@pytest.fixture(scope="package")
def environment(node: Machine) -> Environment:
    shared = Environment(node)
    made_once(node.folder / "brought-up", shared.bring_up)
    return shared
