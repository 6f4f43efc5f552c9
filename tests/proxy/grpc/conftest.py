from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate_proxy.settings import Tunables

from .harness import RIG, Rig, rig


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def tunables() -> Tunables:
    return RIG


@pytest.fixture
def one(tmp_path: Path, tunables: Tunables) -> Iterator[Rig]:
    with rig(tmp_path, tunables=tunables) as running:
        yield running
