"""The baseline: the same checks in a proxy as a good programmer writes it in an afternoon, FastAPI and aiohttp.

Its settings are environment variables: BASELINE_UPSTREAM, BASELINE_JWKS, BASELINE_ISSUER, BASELINE_AUDIENCE and
BASELINE_GROUP. A token that was verified is not verified again until it expires.
"""

import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any

import aiohttp
import jwt
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from prometheus_client import Counter, Histogram
from pydantic import BaseModel

UPSTREAM = os.environ["BASELINE_UPSTREAM"]
REQUESTS_PER_MINUTE = 600_000_000
REQUESTS = Counter("requests", "Requests", ["model", "status"])
SECONDS = Histogram("request_seconds", "Seconds that a request took", ["model"])
keys = jwt.PyJWKClient(os.environ["BASELINE_JWKS"])


@dataclass
class Bucket:
    """A token bucket."""

    tokens: float = REQUESTS_PER_MINUTE
    since: float = field(default_factory=time.monotonic)

    def take(self) -> bool:
        """Take one token, if there is one."""
        now = time.monotonic()
        self.tokens = min(REQUESTS_PER_MINUTE, self.tokens + (now - self.since) * REQUESTS_PER_MINUTE / 60)
        self.since = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


buckets: dict[tuple[str, str], Bucket] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one client for all requests."""
    async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:
        app.state.session = session
        yield


app = FastAPI(lifespan=lifespan)


class PredictRequest(BaseModel):
    """The body of /predict."""

    inference_server_name: str
    model_name: str
    payload: dict[str, Any]


@lru_cache(maxsize=10_000)
def verified(token: str) -> dict[str, Any]:
    """Return the claims of a token that is signed as it should be."""
    return jwt.decode(
        token,
        keys.get_signing_key_from_jwt(token).key,
        algorithms=["RS256"],
        audience=os.environ["BASELINE_AUDIENCE"],
        issuer=os.environ["BASELINE_ISSUER"],
    )


async def caller(authorization: Annotated[str, Header()]) -> dict[str, Any]:
    """Return who calls."""
    scheme, _, token = authorization.partition(" ")
    try:
        claims = verified(token)
    except jwt.PyJWTError as error:
        raise HTTPException(401, str(error)) from None
    if scheme.lower() != "bearer" or claims["exp"] < time.time():
        raise HTTPException(401, "the token has expired")
    return claims


Caller = Annotated[dict[str, Any], Depends(caller)]


def admit(claims: dict[str, Any], model: str) -> None:
    """Let a call pass if a rule grants it and it is not too much."""
    if os.environ["BASELINE_GROUP"] not in claims["groups"] or not fnmatchcase(model, "*"):
        raise HTTPException(403, "no rule allows this")
    if not buckets.setdefault((claims["sub"], model), Bucket()).take():
        raise HTTPException(429, "too many requests")


async def forward(request: Request, model: str, path: str, **body: Any) -> Response:
    """Send a request on, and return what comes."""
    begin = time.perf_counter()
    request_id = request.headers.get("x-request-id") or str(uuid.uuid4())
    headers = {name: value for name in ("content-type", "inference-header-content-length", "traceparent")
               if (value := request.headers.get(name))}  # fmt: skip
    headers["x-request-id"] = request_id
    session: aiohttp.ClientSession = request.app.state.session
    async with session.post(UPSTREAM + path, headers=headers, **body) as answer:
        content = await answer.read()
    SECONDS.labels(model).observe(time.perf_counter() - begin)
    REQUESTS.labels(model, answer.status).inc()
    told = {name: value for name in ("content-type", "inference-header-content-length")
            if (value := answer.headers.get(name))}  # fmt: skip
    return Response(content, answer.status, told | {"x-request-id": request_id})


@app.post("/predict")
async def predict(body: PredictRequest, request: Request, claims: Caller) -> Response:
    """Call a model in the reference's form."""
    admit(claims, body.model_name)
    return await forward(request, body.model_name, f"/v2/models/{body.model_name}/infer", json=body.payload)


@app.post("/v2/models/{model}/infer")
async def infer(model: str, request: Request, claims: Caller) -> Response:
    """Call a model."""
    admit(claims, model)
    return await forward(request, model, f"/v2/models/{model}/infer", data=await request.body())
