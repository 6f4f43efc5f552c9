"""What the tests of the proxy's gRPC side share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Rig, rig


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A proxy with one replica behind it, which the tests of a module share."""
    with rig(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Rig]:
    """The same for one test alone, which may break it."""
    with rig(tmp_path) as running:
        yield running
