"""Tests here need libraries that train and export."""

from pathlib import Path

import pytest

from .models import have_exporters


@pytest.fixture(autouse=True, scope="session")
def exporters() -> Path:
    """Where the libraries are that train and export."""
    return have_exporters()
