"""A stand-in for a Triton server and its eviction policy. It keeps the contract of leases, and fails on command. Each
has a separate loopback address, because all replicas of a pool have the same ports."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tidegate_contracts import lease

from ..http.upstream import Received, Upstream, answer, upstream

UNKNOWN_MODEL = "Request for unknown model: '{}' is not found"
UNKNOWN_VERSION = "Request for unknown model: '{}' version {} is not at ready state"


@dataclass
class Site:
    """One replica. Attributes that a test sets are above, those that it reads are below."""

    host: str
    room: int = 100  # Models that fit.
    load_seconds: float = 0.0
    lease_seconds: float = 1.0
    wait_seconds: float = 5.0
    retry_after: float = 7.0
    refuses: dict[str, lease.Refusal] = field(default_factory=dict)  # Models for which no lease is granted, and why.
    why: dict[str, str] = field(default_factory=dict)  # The reason of each model's state.
    starving: dict[str, float] = field(default_factory=dict)  # For how many seconds models have had no memory.
    accepts: bool = True
    how: str = "well"  # How the policy responds: well, slowly, never, or by hanging up.
    sequential: bool = False

    incarnation: int = 1
    resident: set[str] = field(default_factory=set)
    leases: dict[tuple[str, str], float] = field(default_factory=dict)  # Until when a holder has a model.
    serials: dict[str, int] = field(default_factory=dict)  # Of the latest grant of each model.
    loading: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    loads: Counter[str] = field(default_factory=Counter)
    renewals: list[lease.Renew] = field(default_factory=list)
    acquires: list[lease.Acquire] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    releases: list[lease.Release] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # Requests for models that were not resident, or without a lease.
    calls: list[str] = field(default_factory=list)  # Paths of the requests to Triton.
    triton: Upstream = field(default_factory=Upstream)
    policy: Upstream = field(default_factory=Upstream)

    # --- Triton
    async def serve(self, _: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        path = received.line.split(" ")[1]
        model = path.split("/")[3]
        if model not in self.resident:
            await _send_json(writer, 400, {"error": UNKNOWN_MODEL.format(model)})
        elif "/versions/" in path and path.split("/")[5] != "1":
            await _send_json(writer, 400, {"error": UNKNOWN_VERSION.format(model, path.split("/")[5])})
        elif path.endswith("/config"):
            await answer(writer, b'{"sequence_batching":{}}' if self.sequential else b"{}")
        elif path.endswith(("/ready", "/stats")):
            await answer(writer, b'{"model_stats":[{"name":"%b"}]}' % model.encode())
        else:
            if not any(until > monotonic() for (_, name), until in self.leases.items() if name == model):
                self.wrong.append(path)
            self.calls.append(path)
            if model.startswith("slow"):
                await asyncio.sleep(0.5)
            await answer(writer, json.dumps({"at": self.host}).encode())

    # --- the policy
    async def decide(self, _: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        await asyncio.sleep({"slowly": 0.3, "never": 30}.get(self.how, 0))
        if self.how == "hangs up":
            writer.transport.abort()
            return
        path = received.line.split(" ")[1]
        if path == lease.MODELS_PATH:
            await _send(writer, self._listing())
        elif path.startswith(f"{lease.MODELS_PATH}/"):
            found = [each for each in self._listing().models if each.model == path.rpartition("/")[2]]
            await _send(writer, found[0])
        elif path == lease.ACQUIRE_PATH:
            await self._acquire(writer, lease.Acquire.model_validate_json(received.body))
        elif path == lease.RENEW_PATH:
            await self._renew(writer, lease.Renew.model_validate_json(received.body))
        elif path == lease.RELEASE_PATH:
            message = lease.Release.model_validate_json(received.body)
            self.released += message.models
            self.releases.append(message)
            for model in message.models:
                if message.serials is None or message.serials[model] >= self.serials.get(model, 0):
                    self.leases.pop((message.holder, model), None)
            await _send_json(writer, 200, {})

    async def _acquire(self, writer: asyncio.StreamWriter, message: lease.Acquire) -> None:
        self.acquires.append(message)
        began, model = monotonic(), message.model
        found: lease.Answer
        if model in self.refuses:
            found = self.refuses[model]
        elif model not in self.resident and not self._has_room(model, spare=bool(message.spare)):
            found = lease.Busy(retry_after=self.retry_after, why="everything is in use.")
        elif not await self._loaded(model):
            found = lease.Busy(retry_after=self.retry_after, reason="loading", why=f"{model} is still loading.")
        else:
            waited = monotonic() - began
            found = lease.Granted(
                incarnation=str(self.incarnation),
                lease_seconds=self.lease_seconds + waited,
                versions=(1,),
                waited_seconds=waited,
                serial=len(self.acquires),
            )
            self.serials[model] = found.serial
            self.leases[message.holder, model] = monotonic() + self.lease_seconds
        await _send(writer, found)

    def _has_room(self, model: str, *, spare: bool) -> bool:
        if model in self.loading or len(self.resident) + len(self.loading) < self.room:
            return True
        now = monotonic()
        for other in () if spare else sorted(self.resident):
            if not any(until > now for (_, name), until in self.leases.items() if name == other):
                self.resident.discard(other)
                return True
        return False

    async def _loaded(self, model: str) -> bool:
        if model not in self.resident:
            if model not in self.loading:
                self.loading[model] = asyncio.ensure_future(self._load(model))
            await asyncio.wait([self.loading[model]], timeout=self.wait_seconds)
        return model in self.resident

    async def _load(self, model: str) -> None:
        self.loads[model] += 1
        await asyncio.sleep(self.load_seconds)
        self.resident.add(model)
        del self.loading[model]

    async def _renew(self, writer: asyncio.StreamWriter, message: lease.Renew) -> None:
        self.renewals.append(message)
        now, lost = monotonic(), set(message.models) - self.resident
        for model in message.models:
            key = message.holder, model
            if message.incarnation != str(self.incarnation) or self.leases.get(key, 0.0) <= now:
                lost.add(model)
            elif model not in lost:
                self.leases[key] = now + self.lease_seconds
        found = lease.Renewed(
            incarnation=str(self.incarnation),
            lease_seconds=self.lease_seconds,
            lost=tuple(lost),
            resident=tuple(self.resident),
            accepts=self.accepts,
        )
        await _send(writer, found)

    def _listing(self) -> lease.Listing:
        states: dict[str, Any] = dict.fromkeys(("cold", "a", "b"), "cold")
        states |= dict.fromkeys(self.loading, "loading") | dict.fromkeys(self.resident, "resident")
        states |= dict.fromkeys(self.refuses, "quarantined")
        models = [
            lease.Listed(
                model=name, state=state, state_seconds=3.0, why=self.why.get(name, ""),
                versions=(1,) if state == "resident" else (),
                no_room_seconds=self.starving.get(name),
                failed_seconds=60.0 if state == "quarantined" else None, failed_why="it failed",
                leases=tuple(
                    lease.LeaseOf(holder=holder, seconds_left=until - monotonic(), in_flight=0)
                    for (holder, model), until in self.leases.items() if model == name
                ),
            )
            for name, state in states.items()
        ]  # fmt: skip
        sizes = {name: 0 for name in lease.Listing.model_fields if name.endswith("_bytes")}
        return lease.Listing(incarnation="1", policy="lru-idle", models=tuple(models), **sizes)

    # --- used by tests
    def restart(self) -> None:
        """Become another Triton server without models, as its policy reports."""
        self.incarnation += 1
        self.resident.clear()
        self.leases.clear()


async def _send(writer: asyncio.StreamWriter, message: Any) -> None:
    status = lease.STATUS[message.outcome] if hasattr(message, "outcome") else 200
    await _send_json(writer, status, json.loads(message.model_dump_json(by_alias=True)))


async def _send_json(writer: asyncio.StreamWriter, status: int, found: Any) -> None:
    body = json.dumps(found).encode()
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


@asynccontextmanager
async def sites(number: int = 1, **knobs: Any) -> AsyncIterator[list[Site]]:
    async with AsyncExitStack() as stack:
        made: list[Site] = []
        for index in range(number):
            site = Site(f"127.0.0.{index + 1}", **knobs)
            ports = (made[0].triton.port, made[0].policy.port) if made else (0, 0)
            site.triton = await stack.enter_async_context(upstream(site.serve, site.host, ports[0]))
            site.policy = await stack.enter_async_context(upstream(site.decide, site.host, ports[1]))
            made.append(site)
        yield made
