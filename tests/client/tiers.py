"""Which values of a parametrised test `make test` tries."""

from typing import Any

import pytest


def first_only(*values: Any) -> list[Any]:
    """Return parameters of which `make test` tries the first alone, and `make test-all` all."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.thorough) for value in values[1:])]
