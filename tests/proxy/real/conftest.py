"""What tests with a real Triton have in common."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def triton_has_not_ended(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say how a Triton ended that several tests share, and the end of its log, where it did so."""
    yield
    if "real_triton" in request.fixturenames:
        request.getfixturevalue("real_triton").process.check()
