"""The kind of Triton servers.

Paths are those of the KServe v2 protocol (open inference protocol), with Triton's for generate, statistics and
configuration. Only these spellings exist. The proxy writes the path for Triton itself, so a caller's spelling never
reaches Triton. Model control, shared memory, trace and log settings have no spelling.
"""

import re
from functools import lru_cache
from time import monotonic

import msgspec
from tidegate_contracts.triton import ALIAS_PARAMETER, INDEX_PATH, LIVE_PATH
from tidegate_service.reasons import plain

from ..bodies import UNREADABLE, Bytes, Unpacked
from ..headers import LAST_DIGITS
from ..pools import Pool, ask
from ..problems import CONTENT_TYPE, Problem, ProblemType
from ..server_kind import ServerKind
from ..targets import NAME_PATTERN, VERSION_PATTERN, Target, is_name, is_version
from ..upstream.load_watch import IndexQuestion, LoadIndex
from ..upstream.request import Answer

NAME = "triton"
_PATH = re.compile(
    rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v2/models/(?P<model>{NAME_PATTERN})(?:/versions/(?P<version>{VERSION_PATTERN}))?"
    r"(?:/(?P<verb>infer|generate|generate_stream|ready|config|stats))?"
)
_PREDICT = Target(NAME, "infer", b"POST", "infer", "predict", in_body=True)
"""The target of `/predict` before its body is read."""
EXTENSIONS = frozenset(
    ("binary_tensor_data", "classification", "model_configuration", "parameters", "schedule_policy", "sequence")
) | {"statistics"}
"""Extensions of KServe v2 that callers can use. No path leads to the others, which change or read a server."""
NO_STATISTICS = b'{"model_stats":[]}'  # The statistics of a model that is loaded nowhere.
LOST = re.compile(rb"unknown model: '[^']*' (is not found|has no available versions|version \d+ is not at ready state)")
"""In Triton's errors: the model is not loaded, or not any more. (A version that never existed "is not found".)"""
LOST_STATUSES = frozenset({400, 404, 503})
"""HTTP statuses of these errors: from older Tritons, for a model never loaded, and for an unloaded one."""
LOST_CODES = frozenset({5, 14})  # gRPC's: NOT_FOUND, UNAVAILABLE.


class _Envelope(msgspec.Struct):
    """The body of `/predict`, as the clients of Domino's reference implementation send it. Its payload is the body of a
    v2 inference request. An empty version leaves the choice to the traffic's shares."""

    inference_server_name: str
    model_name: str
    payload: msgspec.Raw
    model_version: str | int | float | None = None  # 3.0 is an integer, too (JSON Schema 2020-12, 6.1.1)


class _Parameters(msgspec.Struct):
    sequence_id: int | str = 0


class _Infer(msgspec.Struct):
    parameters: _Parameters | None = None


class _Indexed(msgspec.Struct):
    """One version in Triton's repository index, or a model without loaded versions."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


class _Error(msgspec.Struct):
    error: str


_UNLOADED = "unloaded"  # The reason of a version that was loaded and is no longer wanted.
_index = msgspec.json.Decoder(list[_Indexed])
_error = msgspec.json.Decoder(_Error)
_envelope = msgspec.json.Decoder(_Envelope)
_infer = msgspec.json.Decoder(_Infer)


def _read_index(body: bytes) -> LoadIndex:
    """Return the contents of an index. Raises ValueError."""
    try:
        index = _index.decode(body)
    except UNREADABLE as error:
        raise ValueError(f"its index cannot be read: {error}") from None
    loaded: dict[str, tuple[int, ...]] = {}
    for each in index:
        if each.state == "READY":
            number = (int(each.version),) if each.version.isdecimal() else ()
            loaded[each.name] = loaded.get(each.name, ()) + number
    failed = {(each.name, each.version): plain(each.reason) for each in index if _has_failed(each)}
    loading = {(each.name, each.version) for each in index if each.state == "LOADING"}
    return LoadIndex(loaded, failed, frozenset(loading))


class _ServerMetadata(msgspec.Struct):
    """Triton's metadata at `/v2`."""

    name: str
    version: str
    extensions: list[str]


_server_metadata = msgspec.json.Decoder(_ServerMetadata)


def as_served(metadata: bytes) -> bytes:
    """Return a server's metadata with only the extensions that callers can use. Unreadable metadata is unchanged."""
    try:
        found = _server_metadata.decode(metadata)
    except UNREADABLE:
        return metadata
    found.extensions = [each for each in found.extensions if each in EXTENSIONS]
    return msgspec.json.encode(found)


def _has_failed(each: _Indexed) -> bool:
    return not each.state or (each.state == "UNAVAILABLE" and each.reason not in ("", _UNLOADED))


class TritonKind(ServerKind):
    """The proxy's side of Triton's protocol."""

    root = "/v2"
    live_path = LIVE_PATH.encode()
    index = IndexQuestion(
        b"POST %b HTTP/1.1\r\nhost: %%b\r\ncontent-length: 2\r\n\r\n{}" % INDEX_PATH.encode(), _read_index
    )
    speaks_v2 = True

    def parse_path(self, path: str) -> Target | None:
        if path == "/predict":
            return _PREDICT
        match = _PATH.fullmatch(path)
        if match is None or (match["model"] == "stats" and not match["verb"] and not match["version"]):
            return None  # Triton would answer there with the statistics of all models
        return _target(match["verb"] or "metadata", match["server"], match["model"], match["version"])

    def open_body(self, _target: Target, body: Bytes) -> tuple[Target, Bytes]:
        """Return the target in the envelope of `/predict`, and its payload. Raises Problem."""
        try:
            envelope = _envelope.decode(body)
        except UNREADABLE as error:
            raise Problem(ProblemType.MALFORMED, f"The body of /predict is not a valid envelope: {error}.") from None
        target = _predict_target(envelope.inference_server_name, envelope.model_name, envelope.model_version)
        return target, memoryview(envelope.payload)

    def path(self, target: Target, version: str | None) -> bytes:
        which = f"/versions/{version}" if version else ""
        tail = "" if target.verb == "metadata" else f"/{target.verb}"
        return f"/v2/models/{target.model}{which}{tail}".encode()

    async def answer_without_lease(self, target: Target, pool: Pool, seconds: float, own_bound: bool) -> Answer:
        """Return the readiness or statistics of a model without loading it. Raises Problem."""
        assert pool.leases is not None
        if target.verb == "ready":
            return Answer(200 if await pool.leases.is_ready(target.model) else 400, "text/plain", b"")
        if (replica := pool.leases.warm_at(target.model, monotonic())) is None:
            return Answer(200, "application/json", NO_STATISTICS)
        return await ask(pool, self.path(target, target.version), seconds, replica, own_bound=own_bound)

    def config_path(self, model: str) -> bytes:
        return f"/v2/models/{model}/config".encode()

    def alias(self, config: bytes, alias: str) -> tuple[str, str]:
        """Return the alias's parameter of config.pbtxt, and its value. Raises ValueError. The publisher writes the key,
        `ALIAS_PARAMETER` and the alias, and the version's number as `string_value`."""
        parameter = ALIAS_PARAMETER + alias
        try:
            parameters = msgspec.json.decode(config).get("parameters", {})
            return parameter, msgspec.convert(parameters.get(parameter, {}).get("string_value", ""), str)
        except (*UNREADABLE, AttributeError) as error:
            raise ValueError("the model's configuration cannot be read") from error

    def keeps_sequences(self, config: bytes) -> bool:
        """Return whether the model is batched by sequence. Raises ValueError."""
        try:
            return "sequence_batching" in msgspec.json.decode(config)
        except (*UNREADABLE, TypeError) as error:
            raise ValueError("the model's configuration cannot be read") from error

    async def sequence_of(self, headers: bytes, unpacked: Unpacked) -> bytes | None:
        """Return a request's sequence, whose state only one replica has (None: no sequence). Raises Problem. In
        Triton's extension of KServe v2, `parameters.sequence_id` is a number or a string. 0 and "" mean none."""
        fields = {}
        for line in headers.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            fields[name.lower()] = value
        length = fields.get(b"inference-header-content-length", b"")
        body = await unpacked(
            fields.get(b"content-encoding", b"").lower(), int(length[LAST_DIGITS]) if length.isdigit() else None
        )
        try:
            parameters = _infer.decode(body).parameters
        except UNREADABLE:
            return None  # the replica reports what is wrong with it
        if parameters is None or not parameters.sequence_id:
            return None
        return str(parameters.sequence_id).encode("utf-8", "surrogatepass")

    def reports_lost(self, status: int, answer: bytes) -> bool:
        return status in LOST_STATUSES and LOST.search(answer) is not None

    async def lacks(self, _status: int, pool: Pool, *_: object) -> bool:
        """Return whether the replica may get the model again: not without leases, so its caller gets the error."""
        return pool.leases is not None

    def reports_lost_over_grpc(self, code: int, headers: bytes) -> bool:
        return code in LOST_CODES and LOST.search(headers) is not None

    def problem_body(self, problem: Problem, request_id: str) -> tuple[str, bytes]:
        """Return the problem's JSON, which also has its text where clients of Triton expect it."""
        return CONTENT_TYPE, problem.body(request_id)

    def error_text(self, body: bytes) -> str:
        """Return the text of `{"error": …}`, or all of any other body."""
        try:
            return _error.decode(body).error
        except UNREADABLE:
            return body.decode("utf-8", "replace")


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
        needs_no_lease=verb in ("ready", "stats"),
        may_be_of_sequence=verb == "infer",
        streams=verb == "generate_stream",
    )


@lru_cache(maxsize=4096, typed=True)
def _predict_target(server: str, model: str, number: str | int | float | None) -> Target:
    if not is_name(server) or not is_name(model):
        raise Problem(ProblemType.UNKNOWN, "This is not a valid name of a server or a model.")
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    version = None if number is None or number == "" else str(number)
    if version is not None and not is_version(version):
        raise Problem(ProblemType.MALFORMED, "model_version must be a number from 1 with at most 16 digits, or empty.")
    return _target("infer", server, model, version)
