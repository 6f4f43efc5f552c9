"""Values of the chart that its schema refuses, and values at which Helm stops: `broken_values.yaml`."""

import copy
import re
from pathlib import Path
from typing import Any

from tests.cases import GONE, read_cases

Values = dict[str, Any]
_FILE = read_cases(Path(__file__).with_suffix(".yaml"))
BASE: Values = _FILE["values"]
REFUSED: dict[str, dict[str, Any]] = _FILE["refused"]
STOPPED: dict[str, dict[str, Any]] = _FILE["stopped"]


def edited(edits: Values, of: Values = BASE) -> Values:
    """Values in which something else stands at some keys, such as `servers[main].pools[cold].placement`.

    A function makes it of what stands there.
    """
    values = copy.deepcopy(of)
    for path, value in edits.items():
        *steps, last = re.findall(r"[^.\[\]]+", path)
        place: Any = values
        for step in steps:
            place = next(item for item in place if item["name"] == step) if isinstance(place, list) else place[step]
        place[last] = value(place[last]) if callable(value) else copy.deepcopy(value)
        if value is GONE:
            del place[last]
    return values
