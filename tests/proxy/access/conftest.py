from collections.abc import AsyncIterator, Iterator

import pytest

from ..rigs.issuer import Issuer, answering, issuer
from .provider import DominoFake
from .tables import WEBS, Clock


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def webs_are_closed(anyio_backend: str) -> AsyncIterator[None]:
    del anyio_backend
    yield
    while WEBS:
        await WEBS.pop().close()


@pytest.fixture
def provider(webs_are_closed: None) -> Iterator[Issuer]:
    del webs_are_closed
    with issuer() as made:
        yield made


@pytest.fixture
def domino(webs_are_closed: None) -> Iterator[DominoFake]:
    del webs_are_closed
    made = DominoFake()
    with answering(made.answer) as url:
        made.url = f"{url}/v4/auth/principal"
        yield made
