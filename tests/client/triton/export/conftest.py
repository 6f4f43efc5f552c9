"""Tests that need libraries for training and export."""

from pathlib import Path

import pytest

from .models import have_exporters


@pytest.fixture(autouse=True, scope="session")
def exporters() -> Path:
    """The directory of the libraries for training and export."""
    return have_exporters()
