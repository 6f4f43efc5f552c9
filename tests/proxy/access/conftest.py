"""What the tests of access share."""

from collections.abc import AsyncIterator

import pytest

from . import provider as providers
from .provider import DominoFake, Provider
from .tables import WEBS, Clock


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providers.provider() as made:
        yield made
        await _close()


@pytest.fixture
async def domino() -> AsyncIterator[DominoFake]:
    async with providers.domino() as made:
        yield made
        await _close()


async def _close() -> None:
    while WEBS:
        await WEBS.pop().close()
