"""An identity provider: a server that publishes keys, and signs real tokens with them."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tidegate_contracts import routing

from .upstream import Caller, head, upstream

AUDIENCE = "inference-proxy"
CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/keys"
Reply = tuple[int, bytes, Mapping[str, str]] | None
"""Status, body and headers of an answer; None ends the connection instead."""
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


_MAKERS: dict[str, Callable[[], PrivateKey]] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@dataclass(frozen=True)
class Key:
    """One key of an issuer."""

    kid: str
    algorithm: str
    private: PrivateKey

    @property
    def published(self) -> dict[str, Any]:
        public: Any = self.private.public_key()
        known: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[self.algorithm]
        said: dict[str, Any] = json.loads(known.to_jwk(public))
        return said | {"kid": self.kid, "use": "sig", "alg": self.algorithm}


@dataclass
class Issuer:
    """Tells who callers are. What it answers, and how fast, can be changed while it runs."""

    url: str = ""
    keys: list[Key] = field(default_factory=list)  # Those that are published.
    down: bool = False  # Whether connections are cut instead of answered.
    asked: list[str] = field(default_factory=list)  # The paths that were asked for, one after the other.

    @property
    def jwks_url(self) -> str:
        return self.url + KEYS_PATH

    @property
    def told(self) -> routing.OidcIssuer:
        """What a table of access says of it."""
        return routing.OidcIssuer(issuer=self.url, audiences=(AUDIENCE,), jwks_url=self.jwks_url, groups_claim="groups")

    def new_key(self, algorithm: str = "RS256") -> Key:
        key = Key(f"key-{next(_numbers)}", algorithm, _MAKERS[algorithm]())
        self.keys.append(key)
        return key

    def token(
        self,
        subject: str = "somebody",
        groups: Sequence[str] = (),
        seconds: float = 3600,
        key: Key | None = None,
        **claims: Any,
    ) -> str:
        """Return a token that is good for so many seconds; a claim of None is left out."""
        now = time.time()
        said = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": subject,
            "groups": list(groups),
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now + seconds),
        } | claims
        key = key or self.keys[-1]
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, key.private, key.algorithm, {"kid": key.kid})

    def answer(self, path: str, _: Mapping[str, str]) -> Reply:
        """Answer a GET of its server."""
        self.asked.append(path)
        if self.down:
            return None
        found: dict[str, Any] = {
            CONFIGURATION_PATH: {"issuer": self.url, "jwks_uri": self.jwks_url},
            KEYS_PATH: {"keys": [key.published for key in self.keys]},
        }
        return json_reply(found[path]) if path in found else (404, b"", {})


_numbers = itertools.count(1)


@contextmanager
def issuer(*algorithms: str, certificate: Path | None = None) -> Iterator[Issuer]:
    """Run an identity provider with a key of each of these algorithms, RS256 without any, on loopback."""
    provider = Issuer()
    for algorithm in algorithms or ("RS256",):
        provider.new_key(algorithm)
    with answering(provider.answer, certificate) as provider.url:
        yield provider


def json_reply(found: Any, status: int = 200) -> Reply:
    return status, json.dumps(found).encode(), {"Content-Type": "application/json"}


@contextmanager
def answering(answer: Callable[[str, Mapping[str, str]], Reply], certificate: Path | None = None) -> Iterator[str]:
    """Run a server that answers each GET by its path and headers, on loopback; yields its URL, https with a folder
    that holds a certificate."""

    def behave(caller: Caller) -> None:
        reply = answer(caller.request.path, caller.request.headers)
        if reply is None:
            caller.close()
        else:
            status, body, headers = reply
            caller.send(head(status, length=str(len(body)), **headers), body)

    with upstream(behave, certificate=certificate) as running:
        yield f"{'http' if certificate is None else 'https'}://{running.http}"
