"""What all tests of the proxy share."""

import pytest

from .rigs.pytest_rigs import front, identity_provider, real_triton

__all__ = ["anyio_backend", "front", "identity_provider", "real_triton"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the proxy runs on."""
    return "asyncio", {"use_uvloop": True}
