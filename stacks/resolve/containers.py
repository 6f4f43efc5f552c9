"""What containers of every kind get: resources, tolerations, and how long they may take to stop."""

from collections.abc import Iterable
from typing import Any

from components import TolerationArgs

from ..definition.base import Resources, Toleration

PRE_STOP_SECONDS = 10
"""Between the news that a pod goes and SIGTERM: its address leaves Services, DNS and the proxies' tables meanwhile."""
GRACE_MARGIN_SECONDS = 10
"""On top of the pause and of what the process may take itself, before SIGKILL."""


def grace_period(stop_seconds: int) -> int:
    """Return a pod's termination grace period: pause, then what the process may take to stop, then a margin."""
    return PRE_STOP_SECONDS + stop_seconds + GRACE_MARGIN_SECONDS


def container_resources(resources: Resources, devices: dict[str, str] | None = None) -> dict[str, Any]:
    """Return requests and limits; `devices` are extended resources, which stand in the limits."""
    limits = {"memory": resources.memory, **(devices or {})}
    if resources.cpu_limit is not None:
        limits["cpu"] = resources.cpu_limit
    return {"requests": {"cpu": resources.cpu, "memory": resources.memory}, "limits": limits}


def tolerations(wanted: Iterable[Toleration]) -> list[TolerationArgs]:
    """Return tolerations as Kubernetes has them."""
    return [
        TolerationArgs(
            key=taint.key,
            operator="Exists" if taint.value is None else "Equal",
            value=taint.value,
            effect=taint.effect,
        )
        for taint in wanted
    ]
