"""The files, and where they are."""

from pathlib import Path

FILES = Path(__file__).parent
