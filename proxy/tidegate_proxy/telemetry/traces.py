"""Optional spans: one for each sampled call, sent to an OpenTelemetry collector in the background.

A span's parent follows W3C Trace Context (https://www.w3.org/TR/trace-context/). Spans travel as OTLP over HTTP in JSON
(https://opentelemetry.io/docs/specs/otlp/#otlphttp), which needs no further library. Attributes follow the semantic
conventions of HTTP and RPC spans. Attributes without a convention are `tidegate.*`.
"""

import asyncio
import logging
import os
import random
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import time_ns
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from ..access.web_client import web_proxy
from ..kinds import KINDS
from ..settings import Tunables
from ..targets import Target

MOST_REFUSED = 64  # Kept spans of calls without a grant between two exports: callers need no credential for them.
ANSWER_SECONDS = 10.0
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_HTTP = {
    name: re.compile(rb"(?i:^|(?<=\r\n))(?i:%b): ([^\r\n]*)\r\n" % name) for name in (b"traceparent", b"tracestate")
}
_SERVER, _ERROR = 2, 2  # The kind of span and the status, in OTLP's enumerations.
_GRPC_ERRORS = frozenset({2, 4, 12, 13, 14, 15})  # Codes that the conventions count as server errors.
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Span:
    """Trace id, span id and parent of one call, and whether it is sampled."""

    trace: str
    parent: str
    state: str
    sampled: bool
    span: str = field(default_factory=lambda: f"{random.getrandbits(64) or 1:016x}")

    @property
    def header(self) -> bytes:
        """The `traceparent` of the request to the replica."""
        return f"00-{self.trace}-{self.span}-01".encode()


def parent(parents: list[bytes]) -> bytes:
    """Return the valid `traceparent` if these values have exactly one. Empty otherwise."""
    found = _PARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    return parents[0] if found is not None and _is_valid(found) else b""


def http_parent(passed: bytes) -> bytes:
    """Return the valid `traceparent` in the header lines for a replica. Empty otherwise."""
    return parent(_HTTP[b"traceparent"].findall(passed))


class Tracer:
    """Makes spans and exports them in the background."""

    def __init__(self, endpoint: str, percent: int, environment: str, tunables: Tunables) -> None:
        self.counts = {"exported": 0, "dropped": 0, "failed": 0}  # Spans by outcome.
        self._url = endpoint.rstrip("/") + "/v1/traces"
        self._share = percent / 100
        self._tunables = tunables
        self._waiting: deque[dict[str, Any]] = deque()
        self._refused = 0  # Sampled spans of calls without a grant, since the last export.
        resource = {"service.name": "tidegate-proxy", "service.instance.id": os.uname().nodename}
        self._resource = _attributes(resource | {"deployment.environment.name": environment})
        self._failing = False

    def over_http(self, passed: bytes) -> tuple[Span, bytes]:
        """Return a request's span, and the header lines for the replica."""
        parents = _HTTP[b"traceparent"].findall(passed)
        states = _HTTP[b"tracestate"].findall(passed)
        span = self.begin(parents, states)
        if not span.sampled:
            return span, passed
        passed = _HTTP[b"traceparent"].sub(b"", passed)
        if not span.parent:
            passed = _HTTP[b"tracestate"].sub(b"", passed)
        return span, passed + b"traceparent: " + span.header + b"\r\n"

    def begin(self, parents: list[bytes], states: list[bytes]) -> Span:
        """Return a call's span. `parents` and `states` are its `traceparent` and `tracestate` headers."""
        found = _PARENT.fullmatch(parents[0]) if len(parents) == 1 else None
        if found is not None and _is_valid(found):
            state = b",".join(states).decode("latin-1")
            return Span(found[2].decode(), found[3].decode(), state, bool(int(found[4], 16) & 1))
        return Span(f"{random.getrandbits(128) or 1:032x}", "", "", random.random() < self._share)

    def http_ended(self, span: Span, target: Target, version: str, status: int, call: Mapping[str, Any]) -> None:
        """Keep a request's span for export, if it is sampled. `version` is HTTP's, `call` the log record."""
        if not span.sampled:
            return
        method = target.method.decode()
        path = KINDS[target.kind].path(replace(target, model="{model}"), None).decode()
        attributes = {
            "http.request.method": method,
            "http.route": path,
            "http.response.status_code": status,
            "http.request.body.size": call["bytesIn"],
            "http.response.body.size": call["bytesOut"],
            "network.protocol.version": version,
        }
        self._keep(span, f"{method} {path}", attributes, call, status >= 500)

    def grpc_ended(self, span: Span, service: str, method: str, code: int, call: Mapping[str, Any]) -> None:
        """Keep a call's span for export, if it is sampled. `call` is the log record."""
        if not span.sampled:
            return
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, "rpc.grpc.status_code": code}
        self._keep(span, f"{service}/{method}", attributes, call, code in _GRPC_ERRORS)

    def _keep(
        self, span: Span, name: str, attributes: Mapping[str, Any], call: Mapping[str, Any], failed: bool
    ) -> None:
        own = {f"tidegate.{each}": call[each] for each in ("server", "model", "version", "replica")}
        own |= {"tidegate.request_id": call["requestId"], "error.type": call["problem"]}
        end = time_ns()
        if call["principal"] is None:
            if span.parent and random.random() >= self._share:
                return  # only a caller with a grant decides what is sampled
            self._refused += 1
            if self._refused > MOST_REFUSED:
                self.counts["dropped"] += 1
                return
        if len(self._waiting) >= self._tunables.waiting_spans:
            self._waiting.popleft()
            self.counts["dropped"] += 1
        self._waiting.append(
            {
                "traceId": span.trace,
                "spanId": span.span,
                "parentSpanId": span.parent,
                "traceState": span.state,
                "name": name,
                "kind": _SERVER,
                "startTimeUnixNano": str(end - int(call["seconds"] * 1e9)),
                "endTimeUnixNano": str(end),
                "attributes": _attributes({**attributes, **own}),
                "status": {"code": _ERROR} if failed else {},
            }
        )

    async def export(self) -> None:
        """Export the kept spans periodically, for ever."""
        while True:
            await asyncio.sleep(self._tunables.export_seconds)
            await self.flush(ANSWER_SECONDS)

    async def flush(self, seconds: float) -> None:
        """Export the kept spans. Spans that the collector does not take within so many seconds are lost and counted."""
        self._refused = 0
        if not self._waiting:
            return
        proxy = web_proxy(URL(self._url))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds), proxy=proxy) as session:
            batch = self._tunables.span_batch
            for _ in range(0, len(self._waiting), batch):
                spans = [self._waiting.popleft() for _ in range(min(batch, len(self._waiting)))]
                why = await self._send(session, spans)
                self.counts["failed" if why else "exported"] += len(spans)
                if why and not self._failing:
                    log.warning("spans cannot be sent to %s: %s", self._url, why)
                self._failing = bool(why)
                if why:
                    break

    async def _send(self, session: aiohttp.ClientSession, spans: list[dict[str, Any]]) -> str:
        """Return why the collector did not take them. Empty if it did."""
        scope = {"scope": {"name": "tidegate_proxy"}, "spans": spans}
        body = {"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]}
        headers = {"content-type": "application/json"}
        try:
            data = msgspec.json.encode(body)
            async with session.post(self._url, data=data, headers=headers, allow_redirects=False) as answer:
                return "" if answer.status == 200 else f"status {answer.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__


def _is_valid(found: re.Match[bytes]) -> bool:
    version, trace, parent, _, rest = found.groups()
    return version != b"ff" and bool(trace.strip(b"0") and parent.strip(b"0")) and (version != b"00" or rest is None)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for name, value in values.items()
        if value is not None
    ]
