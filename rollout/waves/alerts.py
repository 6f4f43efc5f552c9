"""Which alerts fire in a namespace, as Prometheus or an Alertmanager says."""

import json
from typing import Any

from stacks.command import CommandError
from stacks.definition.rollout import Alerts
from stacks.problems import escaped, shortened

from ..kubectl import Kubectl
from . import probe

_PATHS = {
    "prometheus": "/api/v1/alerts",
    "alertmanager": "/api/v2/alerts?active=true&silenced=false&inhibited=false",
}


def firing(alerts: Alerts, kubectl: Kubectl, namespace: str) -> list[str]:
    """Return the names of the alerts that fire in a namespace; raise CommandError when nobody can say."""
    path = _PATHS[alerts.kind]
    if alerts.service is not None:
        at = alerts.service
        answer: str | bytes = probe.through_service(kubectl, at.namespace, at.name, at.port, path, https=at.https)
    else:
        answer = probe.get(f"{(alerts.url or '').rstrip('/')}{path}")
    try:
        found = _alerts(alerts.kind, json.loads(answer))
        names = {
            str(labels.get("alertname", "without a name"))
            for state, labels in found
            if state in ("firing", "active") and labels.get("namespace") == namespace
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CommandError(f"what {alerts.kind} answers cannot be understood") from None
    return [escaped(shortened(name)) for name in sorted(names.difference(alerts.ignore))]


def _alerts(kind: str, answer: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return state and labels of each alert."""
    if kind == "prometheus":
        return [(alert["state"], alert["labels"]) for alert in answer["data"]["alerts"]]
    return [(alert["status"]["state"], alert["labels"]) for alert in answer]
