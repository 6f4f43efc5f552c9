"""Tests that are coroutines run on asyncio."""

from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:  # noqa: ARG001
    """Have all tests in one event loop: gRPC's thread still writes to that of a test before, and a closed one fails.

    Other packages' tests have their own: anyio gives the loop that is there to all, whatever they ask for.
    """
    yield  # noqa: PT022  # which keeps the loop
