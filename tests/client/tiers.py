"""Selects the values of parametrised tests that `make test` runs."""

from typing import Any

import pytest


def first_only(*values: Any) -> list[Any]:
    """Return parameters of which `make test` runs only the first, and `make test-all` all."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.thorough) for value in values[1:])]
