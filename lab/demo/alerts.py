"""The demo's alerts: the rules of an environment over shorter times, so that you need not wait long."""

import re
from typing import Any, Final

from components.alert_rules import alert_rules
from components.naming import Naming
from lab.local_plane.prometheus import NAMESPACE
from stacks.definition.environment import Objectives

SOONER: Final = 10  # Every time in a rule is this many times shorter than on a cluster.
_TIME = re.compile(r"([\[:]|offset |^)(\d+)([mhd])\b")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


def rules() -> list[dict[str, Any]]:
    """Return recording rules and alerts that fire and end ten times as soon: `[1h]` becomes `[360s]`."""

    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shorter(each) for key, each in value.items()}
        return _TIME.sub(lambda found: f"{found[1]}{int(found[2]) * _SECONDS[found[3]] // SOONER}s", value)

    return [shorter(rule) for rule in alert_rules(Naming("demo", NAMESPACE), Objectives())]
