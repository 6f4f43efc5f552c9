"""gRPC's headers and trailers: method, credential and options of a call, and the status with which it ended."""

import base64
import re
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote_to_bytes

from tidegate_contracts import triton
from tidegate_contracts.routing import Action

from ..headers import is_request_id
from ..http2.frames import Fields, MalformedHeadersError, encode_header
from ..problems import Problem, ProblemType
from ..targets import is_name
from ..telemetry.traces import Span
from .protobuf import integer, text

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"


@dataclass(frozen=True, slots=True)
class Method:
    """A method of GRPCInferenceService that is forwarded to the model's server."""

    name: str
    action: Action
    streams: bool = False  # Whether both sides send any number of messages.
    whole: bool = True  # Whether the request is short and has no tensors.

    @property
    def path(self) -> bytes:
        return f"/{SERVICE}/{self.name}".encode()


_OF_MODELS = (
    Method("ModelInfer", "infer", whole=False),
    Method("ModelStreamInfer", "infer", streams=True, whole=False),
    Method("ModelReady", "inspect"),
    Method("ModelMetadata", "inspect"),
    Method("ModelConfig", "inspect"),
    Method("ModelStatistics", "inspect"),
)
OF_MODELS = {method.path: method for method in _OF_MODELS}
"""By path. Only these can be called: the proxy never forwards a path as the caller wrote it."""
OF_PROXY = {f"/{SERVICE}/{name}".encode(): name for name in ("ServerLive", "ServerReady", "ServerMetadata")}
OF_PROXY[f"/{HEALTH}/Check".encode()] = "Check"
"""The methods that the proxy answers itself, by path."""

_NAME = re.compile(rb"[0-9a-z_.-]+")
_UNFIT = re.compile(rb"[\x00\r\n]")
_LENGTH = re.compile(rb"[0-9]{1,19}")
_STATUS = re.compile(rb"[0-9]{1,3}")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
MOST_MESSAGE_BYTES = 4096
"""Bytes of a replica's `grpc-message`: clients replace the status of a call whose trailers exceed 8 KiB by default."""
# The last non-ASCII character and an escape that the cut leaves incomplete.
_CUT_END = re.compile(rb"(?:%[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f])*)?(?:%[0-9A-Fa-f]?)?\Z")
_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_OWN = frozenset({b"host", b"cookie", b"proxy-authorization", triton.RESTRICTED_KEY.encode()})
# Metadata with this prefix opens Triton's restricted protocols, so the proxy never forwards it.
_RESTRICTED = b"triton-grpc-protocol-"


class RequestHeaders:
    """A request's headers: those for the proxy as attributes, the others encoded for the replica."""

    __slots__ = (
        "_context", "_passed", "_scheme", "accepts", "are_trailers", "content_length", "content_type", "credential",
        "credentials", "encoding", "method", "path", "request_id", "seconds", "server", "size", "sticky",
        "trace_parents", "trace_states",
    )  # fmt: skip

    def __init__(self, fields: Fields) -> None:
        self.method = self.path = self._scheme = self.content_type = b""
        self.credential = b""
        self.credentials = 0  # Number of credentials. A call with more than one is refused.
        self.server: str | None = None
        self.sticky: bytes | None = None
        self.request_id = b""
        self.encoding = b"identity"
        self.accepts = b""
        self.seconds: float | None = None  # The caller's deadline, in seconds from now.
        self.trace_parents: list[bytes] = []
        self.trace_states: list[bytes] = []
        self.content_length: int | None = None
        self._context = b""  # The trace headers (W3C Trace Context), encoded.
        passed: list[bytes] = []
        for name, value in fields:
            if name[:1] == b":":
                if passed or self._pseudo(name, value):
                    raise MalformedHeadersError
            elif not _NAME.fullmatch(name) or _UNFIT.search(value) or name in _CONNECTION:
                raise MalformedHeadersError
            elif not self._own(name, value):
                passed.append(encode_header(name, value))
        self.are_trailers = not any(name[:1] == b":" for name, _ in fields)
        if not (self.are_trailers or (self.method and self.path and self._scheme)):
            raise MalformedHeadersError
        self._passed = b"".join(passed)  # Headers for the replica, encoded.
        self.size = sum(len(name) + len(value) + 32 for name, value in fields)  # Memory in bytes.

    def server_name(self) -> str | None:
        """Return the server that the caller names, if any. Raises Problem."""
        if self.server is not None and not is_name(self.server):
            raise Problem(ProblemType.UNKNOWN, "The server's name is not valid.")
        return self.server

    def for_replica(self, span: Span | None) -> bytes:
        """Return the encoded headers for the replica. A sampled `span` becomes their trace parent."""
        if span is None or not span.sampled:
            return self._passed + self._context
        states = [encode_header(b"tracestate", state) for state in self.trace_states] if span.parent else []
        return b"".join((self._passed, *states, encode_header(b"traceparent", span.header)))

    def _pseudo(self, name: bytes, value: bytes) -> bool:
        """Read a pseudo-header. Return whether it is invalid."""
        if name == b":path":
            wrong, self.path = bool(self.path), value
        elif name == b":method":
            wrong, self.method = bool(self.method), value
        elif name == b":scheme":
            wrong, self._scheme = bool(self._scheme), value
        else:
            wrong = name != b":authority"
        return wrong

    def _own(self, name: bytes, value: bytes) -> bool:
        """Read a header that is not for the replica. Return False if it is for the replica."""
        if name == b"authorization":
            self.credentials += 1
            self.credential = value
        elif name in (b"x-api-key", b"x-domino-api-key"):
            self.credentials += 1
            self.credential = name + b" " + value
        elif name == b"inference-server":
            self.server = value.decode("latin-1") or None
        elif name == b"tidegate-sticky":
            self.sticky = value
        elif name == b"x-request-id":
            if is_request_id(value):
                self.request_id = value
        elif name[:5] == b"grpc-":
            self._grpc(name, value)
        elif name == b"te":
            if value != b"trailers":
                raise MalformedHeadersError
        elif name == b"content-type":
            self.content_type = value
        elif name == b"content-length":
            if not _LENGTH.fullmatch(value) or self.content_length not in (None, int(value)):
                raise MalformedHeadersError
            self.content_length = int(value)
        elif name in (b"traceparent", b"tracestate"):
            (self.trace_parents if name == b"traceparent" else self.trace_states).append(value)
            self._context += encode_header(name, value)
        else:
            return name in _OWN or name.startswith(_RESTRICTED)
        return True

    def _grpc(self, name: bytes, value: bytes) -> None:
        if name == b"grpc-timeout":
            if not (found := _TIMEOUT.fullmatch(value)):
                raise MalformedHeadersError
            self.seconds = int(found[1]) * _UNITS[found[2]]
        elif name == b"grpc-encoding":
            self.encoding = value
        elif name == b"grpc-accept-encoding":
            self.accepts = encode_header(name, value)


class ResponseHeaders:
    """A replica's headers before its messages, or its trailers after them."""

    __slots__ = ("block", "grpc_status", "message", "status")

    def __init__(self, fields: Fields) -> None:
        self.status = 0
        self.grpc_status: int | None = None  # Only in trailers.
        self.message = ""  # The replica's own error message.
        passed: list[bytes] = []
        for name, value in fields:
            if name == b":status":
                self.status = int(value) if _STATUS.fullmatch(value) else 0
                continue
            if name[:1] == b":" or name in _CONNECTION:
                raise MalformedHeadersError
            if name == b"grpc-status":
                self.grpc_status = int(value) if _STATUS.fullmatch(value) else 2
            if name == b"grpc-message":
                if len(value) > MOST_MESSAGE_BYTES:  # cut after a whole character
                    value = _CUT_END.sub(b"", value[:MOST_MESSAGE_BYTES]) + _encoded(" …")
                self.message = unquote_to_bytes(value).decode("utf-8", "replace")
            passed.append(encode_header(name, value))
        self.block = b"".join(passed)  # The headers for the caller, encoded, without `:status`.


DOMAIN = b"tidegate.dev"
_TYPES = b"type.googleapis.com/google.rpc."
_ENCODED = re.compile(rb"[^ -$&-~]")
STATUS_200 = b"\x88"  # `:status 200`, with which every gRPC response begins (RFC 7541, appendix A).
OK_HEADERS = STATUS_200 + encode_header(b"content-type", b"application/grpc")  # Of the proxy's own responses.


def problem_trailers(problem: Problem) -> bytes:
    """Return the trailers that end a call with a problem."""
    details = base64.b64encode(_status(problem)).rstrip(b"=")
    return status_trailers(problem.type.grpc_status, problem.detail) + encode_header(
        b"grpc-status-details-bin", details
    )


def status_trailers(code: int, message: str = "") -> bytes:
    """Return the trailers that end a call with a status and an optional message."""
    block = encode_header(b"grpc-status", b"%d" % code)
    return block + encode_header(b"grpc-message", _encoded(message)) if message else block


def _encoded(message: str) -> bytes:
    return _ENCODED.sub(lambda found: b"%%%02X" % found[0][0], message.encode())


def _status(problem: Problem) -> bytes:
    code = integer(1, problem.type.grpc_status)
    status = code + text(2, problem.detail.encode()) + text(3, _error_info(problem.type, problem.reason))
    if problem.retry_after is not None:
        whole, part = divmod(max(0, round(problem.retry_after * 1e9)), 1_000_000_000)
        delay = integer(1, whole) + integer(2, part)
        status += text(3, text(1, _TYPES + b"RetryInfo") + text(2, text(1, delay)))
    return status


@cache
def _error_info(problem_type: ProblemType, reason: str) -> bytes:
    info = text(1, problem_type.word.upper().replace("-", "_").encode()) + text(2, DOMAIN)
    if reason:
        info += text(3, text(1, b"reason") + text(2, reason.encode()))  # an entry of the map `metadata`
    return text(1, _TYPES + b"ErrorInfo") + text(2, info)
