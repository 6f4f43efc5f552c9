"""What the demo is alerted on: the rules of an environment, over shorter times, so that nobody has to wait."""

import re
from typing import Any, Final

from components.alert_rules import alert_rules
from components.naming import Naming
from lab.local_plane.prometheus import NAMESPACE
from stacks.definition.environment import Objectives

SOONER: Final = 10  # Times as short as in a cluster is every time here that alerts look back at, or wait for.
_TIME = re.compile(r"([\[:]|offset |^)(\d+)([mhd])\b")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


def rules() -> list[dict[str, Any]]:
    """Return recording rules and alerts, of which each fires, and ends, ten times as soon: `[1h]` is `[360s]`."""

    def shorter(said: Any) -> Any:
        if isinstance(said, dict):
            return {key: shorter(value) for key, value in said.items()}
        return _TIME.sub(lambda found: f"{found[1]}{int(found[2]) * _SECONDS[found[3]] // SOONER}s", said)

    return [shorter(rule) for rule in alert_rules(Naming("demo", NAMESPACE), Objectives())]
