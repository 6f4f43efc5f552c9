"""Values of the chart that its schema refuses, and values at which Helm stops: `broken_values.yaml`."""

import copy
import re
from pathlib import Path
from typing import Any

from tests.cases import read_cases
from tests.stacks.definition.examples import edit

Values = dict[str, Any]
_FILE = read_cases(Path(__file__).with_suffix(".yaml"))
BASE: Values = _FILE["values"]
REFUSED: dict[str, dict[str, Any]] = _FILE["refused"]
STOPPED: dict[str, dict[str, Any]] = _FILE["stopped"]


def edited(edits: Values, of: Values = BASE) -> Values:
    """Values with changes at some paths, such as `servers[main].pools[cold].placement`."""
    values = copy.deepcopy(of)
    for path, value in edits.items():
        edit(values, re.findall(r"[^.\[\]]+", path), value)
    return values
