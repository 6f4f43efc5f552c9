"""`python -m components.dashboards FOLDER` writes the dashboards as JSON files, to be imported into any Grafana."""

import argparse
import sys
from pathlib import Path

from . import DASHBOARDS
from .grafana import written

parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
parser.add_argument("folder", type=Path)
folder = parser.parse_args().folder
try:
    folder.mkdir(parents=True, exist_ok=True)
    for each in DASHBOARDS:
        file = folder / f"tidegate-{each.name}.json"
        file.write_text(written(each) + "\n", encoding="utf-8")
        print(f"{file}: {each.description}")
except OSError as error:
    sys.exit(
        f"{error.filename or folder} cannot be written: {error.strerror}. Name another folder: make dashboards DIR=…"
    )
