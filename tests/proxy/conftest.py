"""What all tests of the proxy share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .http.house import Caller, House, served
from .rigs.pytest_rigs import front, identity_provider, real_triton

__all__ = ["anyio_backend", "front", "identity_provider", "real_triton"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the proxy runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[House]:
    """A proxy as it is by default, in front of one replica."""
    async with served(tmp_path) as made:
        yield made


@pytest.fixture
async def caller(here: House) -> AsyncIterator[Caller]:
    """A connection to it."""
    async with here.caller() as made:
        yield made
