from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:  # noqa: ARG001
    """Run all coroutine tests of this package in one event loop. gRPC's thread still writes to an earlier test's loop,
    and would fail if it were closed. Other packages have their own loops, because anyio gives an open loop to tests."""
    yield  # noqa: PT022  # which keeps the loop
