"""What a definition says of a stack and no object would carry: it rides on the Namespace, so that previews see it.

Promotion, the gate, waves, writers, the inventory and what clients are told decide what people may do and how changes
arrive; a cluster needs none of it. Written beside the objects it changes as they do, whatever they are compared with.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .. import devices
from ..definition.base import Renamable
from ..stack import Stack

ANNOTATION: Final = "tidegate.dev/definition"
"""On the Namespace; JSON, with the definition's own keys."""
ENVIRONMENT: Final = "environment"
PLANE: Final = "data plane"


def annotation(stack: Stack) -> str:
    """Return the text of the annotation; what is not said is not in it."""
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
                    "timeouts": {"request_seconds"},
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
                        "openai": {"context_length", "frontends"},
                        "triton": {"grpc_tls"},
                    },
                ),
                # Objects have a start-up's bound in steps of the probe's ten seconds.
                "pools": _named((pool for pool in server.pools if pool.startup_seconds % 10), {"startup_seconds"}),
            }
            for server in platform.servers
        },
        "network": {
            key: {each.name: each.model_dump(mode="json", by_alias=True, exclude={"name"}) for each in peers}
            for key, peers in (("callers", platform.network.callers), ("reach", platform.network.reach))
        },
    }
    return json.dumps({**_said(tree), "devices": _devices(stack)}, sort_keys=True, ensure_ascii=False)


def _with_a_past(stack: Stack) -> Iterator[tuple[str, Renamable]]:
    """Yield what may have had other names, and what it is called in sentences."""
    yield f"{ENVIRONMENT} {stack.environment.name}", stack.environment
    yield f"{PLANE} {stack.data_plane.name}", stack.data_plane
    if stack.versions_from is not None:
        yield f"{ENVIRONMENT} {stack.versions_from.name}", stack.versions_from
    yield from ((f"dataset {dataset.name}", dataset) for dataset in stack.platform.datasets)
    for server in stack.platform.servers:
        yield f"server {server.name}", server
        yield from ((f"pool {pool.name} of server {server.name}", pool) for pool in server.pools)


def _devices(stack: Stack) -> list[dict[str, Any]]:
    """Return how many devices of each kind and price the pools take together, autoscalers at their most."""
    counts = Counter[tuple[devices.Device, float | None, str]]()
    for each in devices.taken(stack):
        counts[each.device, each.price, each.currency] += each.count
    return [
        {"device": str(device), "kind": device.price_key, "count": count, "perHour": price, "currency": currency}
        for (device, price, currency), count in sorted((+counts).items(), key=str)
    ]


def _named(parts: Any, keys: set[str]) -> dict[str, Any]:
    return {part.name: part.model_dump(mode="json", by_alias=True, include=keys) for part in parts}


def _said(tree: Any) -> Any:
    """Return a tree without what is not said; a list keeps its order."""
    if isinstance(tree, Mapping):
        said = {key: _said(value) for key, value in tree.items()}
        return {key: value for key, value in said.items() if value not in (None, {}, [])}
    return [_said(item) for item in tree] if isinstance(tree, list) else tree
