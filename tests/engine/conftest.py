"""One set of stacks that the real engine applied. Each test works on a copy of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.validate import read_definition

from .engine import ROOT, Engine, Project, find_engine, made_once

REFERENCE = ("dev-lab", "prod-east", "prod-west")
OTHERS = ("everything", "object-store")
"""Definitions in tests/definitions that between them have most things switched on."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests if the engine is not installed. Not in a fixture: skipped in one place, for one reason, they are one
    line of pytest's summary, also under xdist."""
    found = find_engine() if "engine" in getattr(item, "fixturenames", ()) else None
    if isinstance(found, str):
        pytest.skip(f"NOT RUN: PULUMI'S REAL ENGINE IS NOT HERE ({found}), so no test ran it.")


@pytest.fixture(scope="session")
def engine() -> Engine:
    found = find_engine()
    assert isinstance(found, Engine)
    return found


@pytest.fixture(scope="session")
def brought_up(engine: Engine, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Project:
    """Every stack that the tests compare, rendered by `pulumi up`. Tests must not change it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "engine"
    made_once(shared / "brought-up", lambda root: _bring_up(engine, root))
    return Project(engine, shared / "brought-up")


@pytest.fixture
def project(brought_up: Project, tmp_path: Path) -> Iterator[Project]:
    copy = brought_up.copy(tmp_path / "project")
    yield copy
    copy.end_processes()


def _bring_up(engine: Engine, root: Path) -> None:
    project = Project.create(engine, root)
    for reference in REFERENCE:
        project.up(project.add_rendering_stack(reference, *reference.split("-")))
    for name in OTHERS:
        text = (ROOT / "tests" / "definitions" / f"{name}.yaml").read_text()
        (project.checkout / "stacks" / f"{name}.yaml").write_text(text)
        stack = read_definition(project.checkout / "stacks" / f"{name}.yaml").stacks[0]
        where = stack.environment.name, stack.data_plane.name
        project.up(project.add_rendering_stack(stack.name, *where, definition=f"stacks/{name}.yaml"))
