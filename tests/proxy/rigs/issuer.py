"""An identity provider: a server that publishes keys, and signs real tokens with them."""

import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tidegate_contracts import routing

from lab.local_plane.process import HOST

AUDIENCE = "inference-proxy"
CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/keys"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


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
    keys: list[Key] = field(default_factory=list)
    """Those that are published."""
    down: bool = False
    """Whether connections are cut instead of answered."""
    asked: list[str] = field(default_factory=list)
    """The paths that were asked for, one after the other."""

    @property
    def jwks_url(self) -> str:
        return self.url + KEYS_PATH

    @property
    def told(self) -> routing.OidcIssuer:
        """What a table of access says of it."""
        return routing.OidcIssuer(issuer=self.url, audiences=(AUDIENCE,), jwks_url=self.jwks_url, groups_claim="groups")

    def new_key(self, algorithm: str = "RS256", publish: bool = True) -> Key:
        key = Key(f"key-{next(_numbers)}", algorithm, _make(algorithm))
        if publish:
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

    def answer(self, path: str) -> dict[str, Any] | None:
        found: dict[str, dict[str, Any]] = {
            CONFIGURATION_PATH: {"issuer": self.url, "jwks_uri": self.jwks_url},
            KEYS_PATH: {"keys": [key.published for key in self.keys]},
        }
        return found.get(path)


_numbers = itertools.count(1)


@contextmanager
def issuer(*algorithms: str) -> Iterator[Issuer]:
    """Run an identity provider with a key of each of these algorithms, RS256 without any, on loopback."""
    provider = Issuer()
    for algorithm in algorithms or ("RS256",):
        provider.new_key(algorithm)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            provider.asked.append(self.path)
            self.close_connection = self.close_connection or provider.down
            if provider.down:
                return
            found = provider.answer(self.path)
            body = json.dumps(found or {}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    provider.url = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _make(algorithm: str) -> PrivateKey:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(65537, 2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
    raise ValueError(f"no key can be made for {algorithm}")
