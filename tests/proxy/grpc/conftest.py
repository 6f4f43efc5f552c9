"""Fixtures for the tests of the proxy's gRPC interface."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Rig, rig


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as running:
        yield running
