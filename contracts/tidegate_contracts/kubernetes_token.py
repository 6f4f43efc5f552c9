"""The volume with a token for the cluster's API, as the kubelet creates it."""

from collections.abc import Mapping
from typing import Any


def token_volume(name: str) -> Mapping[str, Any]:
    """Return a pod's volume of that name, which contains `token`, `ca.crt` and `namespace`."""
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ]
        },
    }
