"""An identity provider and a Domino, real ones on this machine's own address, that can be made to fail."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
AUDIENCE = "tidegate-dev"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key of its own for each name: making one takes long."""
    del name
    return rsa.generate_private_key(65537, bits)


def public_jwk(key: PrivateKey, **more: Any) -> dict[str, Any]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        published: dict[str, Any] = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        published = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        published = OKPAlgorithm.to_jwk(public, as_dict=True)
    published.pop("key_ops", None)
    return published | more


def algorithm_of(key: PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"


@dataclass
class Provider:
    """Signs tokens, and publishes its keys at `issuer`."""

    issuer: str = ""
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {"first": rsa_key("first")})
    published: dict[str, PrivateKey] | None = None
    """What it publishes, where that is not what it signs with."""
    mode: str = "well"
    asked: int = 0
    """How often its keys were asked for."""
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

    async def answer_keys(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        match self.mode:
            case "slow":
                await asyncio.sleep(30)
            case "late":
                await asyncio.sleep(0.3)
            case "error":
                return web.Response(status=500, text="no")
            case "junk":
                return web.Response(text="<html>")
            case "empty":
                return web.json_response({"keys": []})
            case "huge":
                return web.Response(text=json.dumps({"keys": [], "more": "x" * 2_000_000}))
            case "elsewhere":
                raise web.HTTPFound("https://127.0.0.1:1/certs")
            case "moved":
                raise web.HTTPFound(f"{self.issuer}/moved")
            case "circle":
                raise web.HTTPFound(self.jwks_url)
        return web.json_response(self.jwks())

    async def answer_moved(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(self.jwks())

    async def answer_discovery(self, _request: web.Request) -> web.StreamResponse:
        self.discovered += 1
        return web.json_response(
            {"issuer": self.said_issuer or self.issuer, "jwks_uri": self.said_jwks_uri or self.jwks_url}
        )


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    routes: list[tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]] = [
        ("/realms/dev/certs", made.answer_keys),
        ("/realms/dev/moved", made.answer_moved),
        ("/realms/dev/.well-known/openid-configuration", made.answer_discovery),
    ]
    async with serving(routes) as address:
        made.issuer = f"{address}/realms/dev"
        yield made


@dataclass
class DominoFake:
    """Answers `/v4/auth/principal` as Domino does: 200 for everybody, and anonymous for those whom it does not know."""

    url: str = ""
    known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    mode: str = "well"
    asked: int = 0
    at_once: int = 0
    most_at_once: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.mode == "late":
                await asyncio.sleep(0.05)
        finally:
            self.at_once -= 1
        match self.mode:
            case "slow":
                await asyncio.sleep(30)
            case "error":
                return web.Response(status=500)
            case "forbidden":
                return web.Response(status=403)
            case "redirect":
                raise web.HTTPFound("/v4/auth/stolen")
            case "nameless":
                return web.json_response({"isAnonymous": False})
            case "silent":
                return web.json_response({"canonicalName": "alice"})
        for name in ("Authorization", "X-Domino-Api-Key"):
            if (said := self.known.get((name, request.headers.get(name, "")))) is not None:
                return web.json_response({"isAnonymous": False, **said})
        return web.json_response({"isAnonymous": True})


@asynccontextmanager
async def domino() -> AsyncIterator[DominoFake]:
    made = DominoFake()
    async with serving([("/v4/auth/principal", made.answer)]) as address:
        made.url = f"{address}/v4/auth/principal"
        yield made


@asynccontextmanager
async def serving(
    routes: list[tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]],
) -> AsyncIterator[str]:
    """A server on a free port; its address."""
    application = web.Application()
    application.add_routes([web.get(path, answer) for path, answer in routes])
    runner = web.AppRunner(application, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
