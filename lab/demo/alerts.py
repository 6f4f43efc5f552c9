"""What the demo is alerted on: the rules of an environment, sooner, so that nobody has to wait."""

import re
from typing import Any, Final

from components.alert_rules import alert_rules
from components.place import Place
from lab.local_plane.prometheus import NAMESPACE
from stacks.definition.environment import Objectives

SOONER: Final = 10  # Times as soon as in a cluster an alert fires here, once its condition holds.
_MINUTES = re.compile(r"(\d+)m")


def rules() -> list[dict[str, Any]]:
    """Return recording rules and alerts, of which each fires ten times as soon."""
    made = alert_rules(Place("demo", NAMESPACE), Objectives())
    for each in made:
        if (lasting := _MINUTES.fullmatch(each.get("for", ""))) is not None:
            each["for"] = f"{60 * int(lasting[1]) // SOONER}s"
    return made
