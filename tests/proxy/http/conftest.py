"""What the tests of the door share."""

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the proxy runs on."""
    return "asyncio", {"use_uvloop": True}
