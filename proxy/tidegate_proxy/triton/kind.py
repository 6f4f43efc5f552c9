"""Triton as one kind of inference server: see `tidegate_proxy.kinds.ServerKind`, which this fulfils.

Paths are those of the KServe v2 protocol (open inference protocol), with Triton's for generate, statistics and
configuration. Only these spellings exist; the path that goes to Triton is written anew from what was understood, so
that no spelling of a caller's ever reaches it. Model control, shared memory, trace and log settings have no spelling.
"""

import re
import zlib
from functools import lru_cache
from time import monotonic

import msgspec
from tidegate_contracts.triton import ALIAS_PARAMETER

from ..pools import Pool, ask
from ..problems import Problem, ProblemType
from ..targets import NAME_PATTERN, VERSION_PATTERN, Target, is_name, is_version
from ..upstream.request import Answer

NAME = "triton"
_PATH = re.compile(
    rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v2/models/(?P<model>{NAME_PATTERN})(?:/versions/(?P<version>{VERSION_PATTERN}))?"
    r"(?:/(?P<verb>infer|generate|generate_stream|ready|config|stats))?"
)
_PREDICT = Target(NAME, "infer", b"POST", "infer", "predict", in_body=True)
"""What `/predict` asks for before its body is known."""
NO_STATISTICS = b'{"model_stats":[]}'  # What there is of a model that is loaded nowhere.
LOST = re.compile(rb"unknown model: '[^']*' (is not found|has no available versions|version \d+ is not at ready state)")
"""In Triton's errors: it has not loaded the model, or not any more. (A version that never was "is not found".)"""
LOST_STATUSES = frozenset({400, 404, 503})
"""HTTP statuses with which that is said: by older Tritons, of a model never loaded, and of one that was unloaded."""
LOST_CODES = frozenset({5, 14})  # gRPC's: NOT_FOUND, UNAVAILABLE.
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What is raised for a text that is no JSON, or is nested too deeply."""


class _Envelope(msgspec.Struct):
    """The body of `/predict`, as the clients of Domino's reference implementation send it.

    Its payload is the body of a v2 inference request. An empty version leaves the choice to the traffic's shares.
    """

    inference_server_name: str
    model_name: str
    payload: msgspec.Raw
    model_version: str | int | None = None


class _Parameters(msgspec.Struct):
    sequence_id: int | str = 0


class _Infer(msgspec.Struct):
    parameters: _Parameters | None = None


_envelope = msgspec.json.Decoder(_Envelope)
_infer = msgspec.json.Decoder(_Infer)


class TritonKind:
    """What the proxy knows of Triton."""

    answers_v2 = speaks_grpc = True

    def understand(self, path: str) -> Target | None:
        """Return what a path asks of a model; None for a path that is not of Triton's protocol."""
        if path == "/predict":
            return _PREDICT
        match = _PATH.fullmatch(path)
        if match is None or (match["model"] == "stats" and not match["verb"] and not match["version"]):
            return None  # `/v2/models/stats` is the statistics of all models
        return _target(match["verb"] or "metadata", match["server"], match["model"], match["version"])

    def open_body(self, body: bytes | bytearray | memoryview) -> tuple[Target, memoryview]:
        """Return what the envelope of `/predict` asks, and its payload; raises Problem."""
        try:
            envelope = _envelope.decode(body)
        except _UNREADABLE as error:
            raise Problem(ProblemType.MALFORMED, f"The body of /predict is no envelope: {error}.") from None
        asked = _asked(envelope.inference_server_name, envelope.model_name, envelope.model_version)
        return asked, memoryview(envelope.payload)

    def path(self, target: Target, version: str | None) -> bytes:
        """Return Triton's path for what is asked, with the version that was chosen."""
        which = f"/versions/{version}" if version else ""
        tail = "" if target.verb == "metadata" else f"/{target.verb}"
        return f"/v2/models/{target.model}{which}{tail}".encode()

    async def look(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Answer whether a model is ready, or its statistics, without loading it; raises Problem."""
        assert pool.leases is not None
        if target.verb == "ready":
            return Answer(200 if await pool.leases.is_ready(target.model) else 400, "text/plain", b"")
        if (replica := pool.leases.warm_at(target.model, monotonic())) is None:
            return Answer(200, "application/json", NO_STATISTICS)
        return await ask(pool, self.path(target, target.version), seconds, replica, own_bound=own_bound)

    def ready_path(self, model: str) -> bytes:
        """Return the path of a model's readiness."""
        return f"/v2/models/{model}/ready".encode()

    def config_path(self, model: str) -> bytes:
        """Return the path of a model's configuration."""
        return f"/v2/models/{model}/config".encode()

    def alias(self, config: bytes, alias: str) -> tuple[str, str]:
        """Return the parameter of config.pbtxt that is the alias, and its value; raises ValueError.

        Contract with the publisher: an entry of `parameters`, whose key is `ALIAS_PARAMETER` and the alias, and whose
        `string_value` is the number of the version.
        """
        parameter = ALIAS_PARAMETER + alias
        try:
            parameters = msgspec.json.decode(config).get("parameters", {})
            return parameter, msgspec.convert(parameters.get(parameter, {}).get("string_value", ""), str)
        except (*_UNREADABLE, AttributeError) as error:
            raise ValueError("the model's configuration cannot be read") from error

    def keeps_sequences(self, config: bytes) -> bool:
        """Tell whether the model is batched by sequence; raises ValueError."""
        try:
            return "sequence_batching" in msgspec.json.decode(config)
        except (*_UNREADABLE, TypeError) as error:
            raise ValueError("the model's configuration cannot be read") from error

    def sequence_of(self, headers: bytes, body: bytes | bytearray | memoryview, most: int) -> bytes | None:
        """Return the id of the request's sequence, None without one; raises Problem.

        All requests of a sequence must reach the same replica, which alone keeps its state. Protocol: Triton's sequence
        extension of KServe v2: `parameters.sequence_id`, a number or a text; 0 and "" are none.
        """
        said = {}
        for line in headers.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            said[name.lower()] = value
        if encoding := said.get(b"content-encoding"):
            body = _unpacked(encoding.lower(), body, most)
        length = said.get(b"inference-header-content-length")
        if length is not None and length.isdigit():
            body = body[: int(length)]
        try:
            parameters = _infer.decode(body).parameters
        except _UNREADABLE:
            return None  # the replica tells what is wrong with it
        if parameters is None or not parameters.sequence_id:
            return None
        return str(parameters.sequence_id).encode("utf-8", "surrogatepass")

    def says_lost(self, status: int, answer: bytes) -> bool:
        """Tell whether Triton says that it does not have the model."""
        return status in LOST_STATUSES and LOST.search(answer) is not None

    def says_lost_over_grpc(self, code: int, headers: bytes) -> bool:
        """Tell whether a gRPC status and its headers say that the replica does not have the model."""
        return code in LOST_CODES and LOST.search(headers) is not None


def _target(verb: str, server: str | None, model: str, version: str | None) -> Target:
    posted = verb in ("infer", "generate", "generate_stream")
    return Target(
        kind=NAME,
        verb=verb,
        method=b"POST" if posted else b"GET",
        action="infer" if posted else "inspect",
        model=model,
        server=server,
        version=version,
        looks_only=verb in ("ready", "stats"),
        may_be_of_sequence=verb == "infer",
        streams=verb == "generate_stream",
    )


@lru_cache(maxsize=4096, typed=True)
def _asked(server: str, model: str, said: str | int | None) -> Target:
    if not is_name(server) or not is_name(model):
        raise Problem(ProblemType.UNKNOWN, "No server or model can have such a name.")
    version = None if said is None or said == "" else str(said)
    if version is not None and not is_version(version):
        raise Problem(ProblemType.MALFORMED, "model_version is a number from 1 of at most 16 digits, or left out.")
    return _target("infer", server, model, version)


def _unpacked(encoding: bytes, body: bytes | bytearray | memoryview, most: int) -> bytes:
    """Return a compressed body, of at most so many bytes."""
    if encoding not in (b"gzip", b"deflate"):
        raise Problem(ProblemType.MALFORMED, "A body may be compressed with gzip or deflate.")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise Problem(ProblemType.MALFORMED, "The body is not compressed as its header says.") from None
    if len(found) > most:
        raise Problem(ProblemType.TOO_LONG, f"A request's body may have {most} bytes here, unpacked.")
    return found
