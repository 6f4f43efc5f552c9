from pathlib import Path

from tidegate import publishing
from tidegate.publishing import Repository
from tidegate.triton.publishing import config


def open_repository(where: Path | str) -> Repository:
    return publishing.open_repository(where, config)
