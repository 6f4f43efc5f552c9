"""Access to the lease API: for this environment's proxies, by their pods' tokens.

The cluster signs a proxy's token, and its API server publishes the keys. The policy keeps the last keys on disk, so it
needs no API server at a restart.
"""

import asyncio
import http.client
import json
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from tidegate_contracts import eviction_process, lease, proxy_process
from tidegate_service.tokens import ALGORITHMS, MOST_TOKEN_BYTES, TokenError, read_keys, verified_claims

from ..files import KeptFile

REFRESH_SECONDS = 300.0
ANSWER_SECONDS = 5.0
_KEPT = "keys.json"
_MOST_BYTES = 512 * 1024
log = logging.getLogger(__name__)


class NotLetInError(Exception):
    """A message is refused, with a reason and a status."""

    def __init__(self, why: str, status: int = 401) -> None:
        super().__init__(why)
        self.status = status


def check_holder(pod: str | None, holder: str) -> None:
    """Raise NotLetInError if the holder belongs to another pod. None: the pod is unknown."""
    if pod is not None and not lease.is_holder_of(pod, holder):
        raise NotLetInError(f"The holder {holder} does not belong to the pod in the token.", 403)


class ClusterKeys:
    """The keys with which the cluster signs tokens. `folder` is the directory of `eviction_process.CLUSTER`."""

    def __init__(self, folder: Path, state: Path, pause_seconds: float) -> None:
        self._folder = folder
        self._pause_seconds = pause_seconds  # The least pause between two reads, however many unknown keys tokens name.
        self._kept = KeptFile(state / _KEPT, "a restart needs the API server")
        self.wall: Callable[[], float] = time.time
        self._by_name: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._document: Any = None
        self._as_of = 0.0  # The time of the last read.
        self._failure = "they were not read yet"
        self._next = 0.0  # They are not read before this monotonic time.
        self._reading: asyncio.Task[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self.changed: Callable[[], None] = lambda: None

    @property
    def known(self) -> bool:
        """Whether any keys were read, now or before a restart."""
        return bool(self._by_name)

    @property
    def ended(self) -> float:
        """The time for the expiry of tokens. It stands still while the API server is down: no token is renewed then."""
        return self._as_of if self._failure else self.wall()

    def start(self) -> None:
        """Load the keys of before a restart, and begin to read the present ones. The start waits for neither."""
        try:
            kept = json.loads(self._kept.path.read_bytes())
            self._use(kept["keys"], min(float(kept["asOf"]), self.wall()))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, TokenError) as error:
            log.warning("%s cannot be used: %s", self._kept.path, error)
        self._reading = self._first = asyncio.create_task(self._refresh())

    async def tried(self) -> None:
        """Wait until keys are known, or the first read has failed."""
        if not self.known and self._first is not None:
            await asyncio.wait({self._first})

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(self._pause_seconds if self._failure else REFRESH_SECONDS)
            await self.refresh()

    async def find(self, token: str) -> jwt.PyJWK:
        """Return the key that a token names. Reads unknown keys from time to time. Raises TokenError."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenError("The credential is not a token.") from None
        name = header.get("kid"), str(header.get("alg"))
        if name[1] not in ALGORITHMS or not isinstance(name[0], str):
            raise TokenError("The token's header names no key of the cluster.")
        if name not in self._by_name and time.monotonic() >= self._next:
            await self.refresh()
        if name not in self._by_name:
            raise TokenError("The cluster has no such key.")
        return self._by_name[name]

    async def refresh(self) -> None:
        """Read the keys, or wait for a read in progress. After a failure the last keys stay."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._refresh())
        await asyncio.shield(self._reading)

    async def _refresh(self) -> None:
        at = self.wall()
        try:
            document = json.loads(await asyncio.to_thread(self._fetch))
            self._use(document, at)
        except (OSError, ValueError, RecursionError, AttributeError, http.client.HTTPException, TokenError) as error:
            if not self._failure or not self.known:
                log.warning("cannot read the cluster's keys: %s", error)
            self._failure = str(error) or type(error).__name__
        else:
            if self._failure:
                log.info("the cluster's keys were read")
            self._failure = ""
            kept = json.dumps({"asOf": at, "keys": document}).encode()
            await asyncio.to_thread(self._kept.write, kept)
        self._next = time.monotonic() + self._pause_seconds

    def _use(self, document: Any, at: float) -> None:
        by_name = {(key.key_id, str(key.algorithm_name)): key for key in read_keys(document)}
        if document != self._document:
            self._document, self._by_name = document, by_name
            self.changed()
        self._as_of = at

    def _fetch(self) -> bytes:
        file = self._folder / eviction_process.CLUSTER_KEYS_FILE
        if file.exists():
            return file.read_bytes()
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host:
            raise OSError("KUBERNETES_SERVICE_HOST, the address of the API server, is not set")
        context = ssl.create_default_context(cafile=self._folder / "ca.crt")
        token = (self._folder / "token").read_text("ascii").strip()
        asking = http.client.HTTPSConnection(host, int(port or 443), timeout=ANSWER_SECONDS, context=context)
        try:
            asking.request("GET", eviction_process.KEYS_PATH, headers={"authorization": f"Bearer {token}"})
            answer = asking.getresponse()
            body = answer.read(_MOST_BYTES)
        finally:
            asking.close()
        if answer.status != 200:
            raise OSError(f"the API server returned {answer.status} for GET {eviction_process.KEYS_PATH}")
        return body


class Callers:
    """Identifies the senders of messages. The last verified tokens are not verified again before they expire."""

    def __init__(self, cluster: Path, state: Path, pause_seconds: float = 10.0, most_remembered: int = 1024) -> None:
        """Raises OSError if the pod lacks its volumes."""
        namespace = (cluster / "namespace").read_text("utf-8").strip()
        self.keys = ClusterKeys(cluster, state, pause_seconds)
        self.keys.changed = lambda: self._remembered.clear()
        self._subject = f"system:serviceaccount:{namespace}:{proxy_process.ACCOUNT}"
        self._remembered: dict[str, tuple[float, str]] = {}
        self._most_remembered = most_remembered
        self._is_strict = bool(os.environ.get(eviction_process.KEYS_REQUIRED))

    async def follow(self) -> None:
        await self.keys.tried()
        if not self.keys.known:
            until = "no lease is granted" if self._is_strict else "only the network policies protect the lease port"
            log.warning("until the cluster's keys are read, %s", until)
        await self.keys.follow()

    async def identify(self, authorization: str | None) -> str | None:
        """Return the pod that sent an `Authorization` header. None: it cannot be verified yet. Raises NotLetInError."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        is_bearer = scheme.lower() == "bearer" and token.isascii() and len(token) <= MOST_TOKEN_BYTES
        await self.keys.tried()
        if not self.keys.known:
            if self._is_strict:
                raise NotLetInError("The policy has not read the cluster's keys yet, so it cannot verify tokens.", 503)
            return None
        if not is_bearer or not token:
            raise NotLetInError(f"Send a proxy's token for the audience {lease.AUDIENCE} as `Authorization: Bearer`.")
        ends, pod = self._remembered.get(token, (0.0, ""))
        if ends <= self.keys.ended:
            try:
                ends, pod = await self._verified(token)
            except TokenError as error:
                raise NotLetInError(str(error)) from None
            if len(self._remembered) >= self._most_remembered:
                self._remembered.clear()
            self._remembered[token] = ends, pod
        return pod

    async def _verified(self, token: str) -> tuple[float, str]:
        keys = self.keys
        key = await keys.find(token)
        claims = verified_claims(token, key, (lease.AUDIENCE,), keys.wall(), ended=keys.ended)
        if claims["sub"] != self._subject:
            raise TokenError(f"The token's subject is not {self._subject}.")
        match claims.get("kubernetes.io"):
            case {"pod": {"name": str(name)}} if name:
                return float(claims["exp"]), name
        raise TokenError("The token is not bound to a pod.")
