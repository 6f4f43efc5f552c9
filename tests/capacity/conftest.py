"""What tests of commands have in common: the machine may be as slow as it likes."""

import math

import pytest


@pytest.fixture(autouse=True)
def _says_nothing_of_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes more than three seconds would: in a line of its own, beside the one that a test asks for."""
    monkeypatch.setattr("tidegate_eviction.simulate.trace.TELL_SECONDS", math.inf)
