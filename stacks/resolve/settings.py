"""Settings of a stack that no object contains: an annotation of the Namespace has them, so that previews compare them.

They are promotion, the gate, waves, writers, the inventory and facts for clients. They control people and rollouts, but
the cluster does not need them.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .. import devices
from ..definition.base import Renamable
from ..stack import Stack

ANNOTATION: Final = "tidegate.dev/definition"
"""Annotation of the Namespace: JSON with the definition's keys."""
ENVIRONMENT: Final = "environment"
PLANE: Final = "data plane"


def annotation(stack: Stack) -> str:
    """Return the text of the annotation, without keys that are not set."""
    environment, plane, platform = stack.environment, stack.data_plane, stack.platform
    of_plane = plane.model_dump(mode="json", by_alias=True, exclude={"environments", "formerly"})
    tree = {
        **environment.model_dump(mode="json", by_alias=True, include={"name", "rollout", "promotion"}),
        "formerly": {what: [*item.formerly] for what, item in _with_a_past(stack)},
        "dataPlane": {**of_plane, "context": plane.context_name},
        **platform.model_dump(
            mode="json",
            by_alias=True,
            include={
                "gate": True,
                "domino": True,
                "mesh": {"mtls"},
                "monitoring": {"operator", "rules", "objectives"},
                "proxy": {
                    "auth": {"api_keys", "domino_principal", "authorities"},
                    "body_limit": True,
                    "exposure": True,
                    "timeouts": {"request_seconds", "drain_seconds"},
                    "tls": True,
                },
            },
        ),
        "images": _named(platform.images, {"backends"}),
        "datasets": _named(platform.datasets, {"writers", "domino"}),
        "servers": {
            server.name: {
                **server.model_dump(
                    mode="json",
                    by_alias=True,
                    include={
                        "repository": True,
                        "identity": True,
                        "openai": {"context_length", "exit_timeout_seconds", "frontends"},
                        "triton": {"grpc_tls", "exit_timeout_seconds"},
                    },
                ),
                # The startup probes of objects have steps of ten seconds.
                "pools": _named((pool for pool in server.pools if pool.startup_seconds % 10), {"startup_seconds"}),
            }
            for server in platform.servers
        },
        "network": {
            key: {each.name: each.model_dump(mode="json", by_alias=True, exclude={"name"}) for each in peers}
            for key, peers in (("callers", platform.network.callers), ("reach", platform.network.reach))
        }
        | platform.network.model_dump(mode="json", by_alias=True, include={"api_server"}),
    }
    return json.dumps({**_without_empty(tree), "devices": _devices(stack)}, sort_keys=True, ensure_ascii=False)


def _with_a_past(stack: Stack) -> Iterator[tuple[str, Renamable]]:
    """Yield the items that can have former names, each with its name in messages."""
    yield f"{ENVIRONMENT} {stack.environment.name}", stack.environment
    yield f"{PLANE} {stack.data_plane.name}", stack.data_plane
    if stack.versions_from is not None:
        yield f"{ENVIRONMENT} {stack.versions_from.name}", stack.versions_from
    yield from ((f"dataset {dataset.name}", dataset) for dataset in stack.platform.datasets)
    for server in stack.platform.servers:
        yield f"server {server.name}", server
        yield from ((f"pool {pool.name} of server {server.name}", pool) for pool in server.pools)


def _devices(stack: Stack) -> list[dict[str, Any]]:
    """Return the number of devices of each kind and price that all pools take, with autoscalers at their maximum."""
    counts = Counter[tuple[devices.Device, float | None, str]]()
    for each in devices.taken(stack):
        counts[each.device, each.price, each.currency] += each.count
    return [
        {"device": str(device), "kind": device.price_key, "count": count, "perHour": price, "currency": currency}
        for (device, price, currency), count in sorted((+counts).items(), key=str)
    ]


def _named(parts: Any, keys: set[str]) -> dict[str, Any]:
    return {part.name: part.model_dump(mode="json", by_alias=True, include=keys) for part in parts}


def _without_empty(tree: Any) -> Any:
    """Return a tree without empty values in mappings."""
    if isinstance(tree, Mapping):
        found = {key: _without_empty(value) for key, value in tree.items()}
        return {key: value for key, value in found.items() if value not in (None, {}, [])}
    return [_without_empty(item) for item in tree] if isinstance(tree, list) else tree
