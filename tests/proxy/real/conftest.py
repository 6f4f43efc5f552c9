from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def triton_has_not_ended(request: pytest.FixtureRequest) -> Iterator[None]:
    """If a shared Triton has exited, report its exit status and the end of its log."""
    yield
    if "real_triton" in request.fixturenames:
        request.getfixturevalue("real_triton").process.check()
