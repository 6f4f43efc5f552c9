from pathlib import Path

import pytest

from .models import have_exporters


@pytest.fixture(autouse=True, scope="session")
def exporters() -> Path:
    return have_exporters()
