"""Replaces a cluster: the key that signs the tokens of proxies' pods, and the files that a kubelet would mount."""

import json
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from jwt.algorithms import ECAlgorithm
from tidegate_contracts import eviction_process, lease, proxy_process

from .process import replace_file

NAMESPACE = "lab"
SECONDS = 86_400


@cache
def _key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


def lease_token(pod: str = "", **claims: Any) -> str:
    """Return the token of a proxy's pod, by default of this machine's proxies."""
    now = int(time.time())
    pod = pod or socket.gethostname()
    standard = {
        "iss": "https://lab.example",
        "aud": [lease.AUDIENCE],
        "sub": f"system:serviceaccount:{NAMESPACE}:{proxy_process.ACCOUNT}",
        "iat": now,
        "nbf": now,
        "exp": now + SECONDS,
        "kubernetes.io": {"namespace": NAMESPACE, "pod": {"name": pod, "uid": pod}},
    }
    return jwt.encode(standard | claims, _key(), "ES256", {"kid": "lab"})


def write_lease_token(root: Path) -> None:
    """Write a proxy's token where it reads it, below `root`."""
    (root / "leases").mkdir(parents=True, exist_ok=True)
    replace_file(root / "leases" / proxy_process.LEASE_TOKEN_FILE, lease_token())


def write_cluster(folder: Path) -> Path:
    """Write the cluster's files for a policy, and return the directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "namespace").write_text(NAMESPACE, "utf-8")
    keys = {"keys": [ECAlgorithm.to_jwk(_key().public_key(), as_dict=True) | {"kid": "lab", "alg": "ES256"}]}
    replace_file(folder / eviction_process.CLUSTER_KEYS_FILE, json.dumps(keys))
    return folder
