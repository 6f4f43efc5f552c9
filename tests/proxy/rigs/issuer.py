"""An identity provider: a server that publishes keys, signs real tokens with them, and can be made to fail."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tidegate_contracts import routing

from ..http.upstream import Received, replying, response, running_upstream

AUDIENCE = "inference-proxy"
Reply = tuple[int, bytes, Mapping[str, str]] | None
"""Status, body and headers of a response. None closes the connection instead."""
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key for this name, cached because generating one takes long."""
    del name
    return rsa.generate_private_key(65537, bits)


def algorithm_of(key: PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"


def public_jwk(key: PrivateKey, **more: Any) -> dict[str, Any]:
    kinds: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
    public = kinds[algorithm_of(key)].to_jwk(key.public_key(), as_dict=True)
    return {name: public[name] for name in public.keys() - {"key_ops"}} | more


@dataclass
class Issuer:
    url: str = ""
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {"first": rsa_key("first")})
    published: dict[str, PrivateKey] | None = None  # The published keys, if they differ from the signing keys.
    mode: str = "well"
    requests: int = 0  # Number of requests for its keys.
    discovered: int = 0
    doc_issuer: str | None = None
    doc_jwks_uri: str | None = None

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/certs"

    @property
    def entry(self) -> routing.OidcIssuer:
        return routing.OidcIssuer(issuer=self.url, audiences=(AUDIENCE,), jwks_url=self.jwks_url, groups_claim="groups")

    def claims(self, **more: Any) -> dict[str, Any]:
        """Return a token's claims. Claims with the value None are left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300}
        return {name: value for name, value in (usual | more).items() if value is not None}

    def sign(self, kid: str | None = None, /, headers: dict[str, Any] | None = None, **more: Any) -> str:
        kid = kid or next(iter(self.keys))
        key = self.keys[kid]
        return jwt.encode(self.claims(**more), key, algorithm_of(key), headers={"kid": kid} | (headers or {}))

    def bearer(self, kid: str | None = None, /, **more: Any) -> bytes:
        return b"Bearer " + self.sign(kid, **more).encode()

    def token(self, subject: str, groups: Sequence[str] = (), seconds: float = 3600) -> str:
        return self.sign(sub=subject, groups=list(groups), exp=int(time.time() + seconds))

    def jwks(self) -> dict[str, Any]:
        keys = self.keys if self.published is None else self.published
        return {"keys": [public_jwk(key, kid=kid, use="sig") for kid, key in keys.items()]}

    def answer(self, path: str, _: Mapping[str, str]) -> Reply:
        if self.mode == "down":
            return None
        if path.endswith("openid-configuration"):
            self.discovered += 1
            return json_reply({"issuer": self.doc_issuer or self.url, "jwks_uri": self.doc_jwks_uri or self.jwks_url})
        if path.endswith("certs"):
            self.requests += 1
            match self.mode:
                case "slow" | "late":
                    time.sleep({"slow": 3, "late": 0.3}[self.mode])
                case "error":
                    return 500, b"no", {}
                case "junk":
                    return 200, b"<html>", {}
                case "empty":
                    return json_reply({"keys": []})
                case "huge":
                    return json_reply({"keys": [], "more": "x" * 2_000_000})
                case "moved":
                    return 302, b"", {"Location": f"{self.url}/moved"}
        return json_reply(self.jwks())


@contextmanager
def issuer(certificate: Path | None = None) -> Iterator[Issuer]:
    provider = Issuer()
    with answering(provider.answer, certificate) as url:
        provider.url = f"{url}/realms/dev"
        yield provider


def json_reply(found: Any) -> Reply:
    return 200, json.dumps(found).encode(), {"Content-Type": "application/json"}


@contextmanager
def answering(answer: Callable[[str, Mapping[str, str]], Reply], certificate: Path | None = None) -> Iterator[str]:
    """Answer each GET by its path and headers, at the yielded URL. With the directory of a `certificate`, over TLS."""

    def reply(received: Received) -> bytes:
        if (found := answer(received.path, received.headers)) is None:
            return b""
        status, body, headers = found
        return response(body, status, **headers)

    with running_upstream(replying(reply), certificate) as running:
        yield f"{'http' if certificate is None else 'https'}://{running.http}"
