"""An identity provider and a Domino, real ones on this machine's own address, that can be made to fail."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ..rigs.issuer import Key, PrivateKey, Reply, json_reply

AUDIENCE = "tidegate-dev"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key of its own for each name: making one takes long."""
    del name
    return rsa.generate_private_key(65537, bits)


def algorithm_of(key: PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"


def public_jwk(key: PrivateKey, **more: Any) -> dict[str, Any]:
    said = Key("", algorithm_of(key), key).published
    return {name: said[name] for name in said.keys() - {"kid", "use", "alg", "key_ops"}} | more


@dataclass
class Provider:
    """Signs tokens, and publishes its keys at `issuer`."""

    issuer: str = ""
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {"first": rsa_key("first")})
    published: dict[str, PrivateKey] | None = None  # What it publishes, where that is not what it signs with.
    mode: str = "well"
    asked: int = 0  # How often its keys were asked for.
    discovered: int = 0
    said_issuer: str | None = None
    said_jwks_uri: str | None = None

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/certs"

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300}
        return {name: value for name, value in (usual | more).items() if value is not None}

    def token(self, kid: str | None = None, /, headers: dict[str, Any] | None = None, **more: Any) -> str:
        kid = kid or next(iter(self.keys))
        key = self.keys[kid]
        return jwt.encode(self.claims(**more), key, algorithm_of(key), headers={"kid": kid} | (headers or {}))

    def bearer(self, kid: str | None = None, /, **more: Any) -> bytes:
        return b"Bearer " + self.token(kid, **more).encode()

    def jwks(self) -> dict[str, Any]:
        keys = self.keys if self.published is None else self.published
        return {"keys": [public_jwk(key, kid=kid, use="sig") for kid, key in keys.items()]}

    def answer(self, path: str, _: Mapping[str, str]) -> Reply:
        if path.endswith("openid-configuration"):
            self.discovered += 1
            return json_reply(
                {"issuer": self.said_issuer or self.issuer, "jwks_uri": self.said_jwks_uri or self.jwks_url}
            )
        if path.endswith("certs"):
            self.asked += 1
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
                    return 302, b"", {"Location": f"{self.issuer}/moved"}
        return json_reply(self.jwks())


@dataclass
class DominoFake:
    """Answers `/v4/auth/principal` as Domino does: 200 for everybody, and anonymous for those whom it does not know."""

    url: str = ""
    known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    mode: str = "well"
    asked: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def answer(self, _: str, headers: Mapping[str, str]) -> Reply:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep({"late": 0.05, "slow": 3}.get(self.mode, 0))
        self.at_once -= 1
        match self.mode:
            case "error" | "forbidden":
                return {"error": 500, "forbidden": 403}[self.mode], b"", {}
            case "redirect":
                return 302, b"", {"Location": "/v4/auth/stolen"}
            case "nameless":
                return json_reply({"isAnonymous": False})
            case "silent":
                return json_reply({"canonicalName": "alice"})
        for name in ("Authorization", "X-Domino-Api-Key"):
            if (said := self.known.get((name, headers.get(name.lower(), "")))) is not None:
                return json_reply({"isAnonymous": False, **said})
        return json_reply({"isAnonymous": True})


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
