"""What is measured: rows, each a kind of call that every contestant answers by turns."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.bench.report import say, turns
from tests.proxy.rigs.perf_analyzer import PerfAnalyzerError, perf_analyzer
from tests.proxy.rigs.tables import SERVER

from .contestants import IDIOMATIC, OURS, Contestant, Cores
from .load import Call, LoadError, answer, first_event, load

MODEL = "simple"
"""The model of the upstream that answers at once."""
ANSWER = json.dumps(
    {
        "model_name": MODEL,
        "model_version": "1",
        "outputs": [{"name": "OUTPUT", "datatype": "FP32", "shape": [1, 4], "data": [1.5, 2.5, 3.5, 4.5]}],
    },
    separators=(",", ":"),
).encode()
_REQUEST = {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}]}
_PICTURE = 3 * 224 * 224
"""Numbers in a picture, as models of vision take it: 602 112 bytes."""
_SUMS = f'"data":[{",".join(["0"] * 16)}]}}]}}'.encode()
WARM_SECONDS = 1.0
VARIANTS = 5000
"""Heads of the rows whose heads vary as real clients' do."""


@dataclass(frozen=True)
class Result:
    """What came of one contestant's turn."""

    per_second: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    processor_microseconds: float = 0.0
    """Processor time of the contestant for a request."""
    busy: float = 0.0
    """The share of its core that it used; well below 1, something else is the limit."""


@dataclass(frozen=True)
class Turn:
    """What a turn needs to know."""

    seconds: float
    cores: Cores
    folder: Path
    token: str


Play = Callable[[Contestant, Turn], Result]


@dataclass(frozen=True)
class Row:
    """One kind of call."""

    name: str
    words: str
    upstream: str
    """`simple`, which answers at once, or `triton`."""
    names: Sequence[str]
    play: Play


@dataclass
class Found:
    """The results of a row, by contestant, in the order of the runs."""

    row: Row
    results: dict[str, list[Result]] = field(default_factory=dict)


def measure(row: Row, contestants: Mapping[str, Contestant], turn: Turn, runs: int) -> Found:
    """Let all contestants have their turns, in every run in another order; one that fails is said, and left out."""
    found = Found(row, {name: [] for name in row.names if name in contestants})
    for run, name in turns([*found.results], runs):
        if name not in found.results:
            continue
        if run >= 0:
            say(f"{row.name}: run {run + 1} of {runs}, {name} …")
        seconds = turn.seconds if run >= 0 else min(turn.seconds, WARM_SECONDS)
        try:
            result = row.play(contestants[name], replace(turn, seconds=seconds))
        except LoadError as error:
            say(f"NOT MEASURED: {row.name} OF {name}: {error}")
            del found.results[name]
            continue
        if run >= 0:
            found.results[name].append(result)
    return found


def rows() -> list[Row]:
    """Return every row."""
    infer = f"/v2/models/{MODEL}/infer"
    wrapped = {"inference_server_name": SERVER, "model_name": MODEL, "payload": _REQUEST}
    numbers = [{"name": f"INPUT{which}", "datatype": "INT32", "shape": [16], "data": [*range(16)]} for which in (0, 1)]
    stream = {"IN": [1, 2, 3], "DELAY": [0, 5, 5]}
    return [
        Row("predict", "/predict, 32 connections", "simple", ["nginx", OURS, IDIOMATIC],
            _http(_json("/predict", wrapped, ANSWER), 32)),
        Row("v2", "/v2/…/infer, 32 connections", "simple", ["nginx", OURS, "envoy", "haproxy", IDIOMATIC],
            _http(_json(infer, _REQUEST, ANSWER), 32)),
        Row("predict_varying", "/predict, heads vary, 32 connections", "simple", ["nginx", OURS],
            _http(_json("/predict", wrapped, ANSWER, VARIANTS), 32)),
        Row("v2_varying", "/v2/…/infer, heads vary, 32 connections", "simple", ["nginx", OURS, "envoy"],
            _http(_json(infer, _REQUEST, ANSWER, VARIANTS), 32)),
        Row("triton_http", "real Triton, /v2/…/infer, 32 connections", "triton", ["nginx", OURS],
            _http(_json("/v2/models/add_sub/infer", {"inputs": numbers}, _SUMS), 32)),
        Row("tensor_600k", "real Triton, 600 KB there and back, 8 connections", "triton", ["nginx", OURS],
            _http(_picture(), 8)),
        Row("grpc", "real Triton, gRPC, 32 streams (perf_analyzer)", "triton", ["direct", OURS], _grpc),
        Row("stream_first_token", "real Triton, first event of generate_stream", "triton", ["nginx", OURS],
            _first_event(_json("/v2/models/repeat/generate_stream", stream))),
    ]  # fmt: skip


def _json(path: str, body: object, ends: bytes = b"", variants: int = 0) -> Call:
    return Call(path, json.dumps(body).encode(), {"Content-Type": "application/json"}, ends, variants)


def _picture() -> Call:
    size = _PICTURE * 4
    tensor = {"name": "INPUT", "datatype": "FP32", "shape": [_PICTURE], "parameters": {"binary_data_size": size}}
    output = {"name": "OUTPUT", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    picture = bytes(range(256)) * (size // 256)
    return Call("/v2/models/echo/infer", head + picture, headers, picture)


def _http(call: Call, connections: int) -> Play:
    def play(contestant: Contestant, turn: Turn) -> Result:
        said = _with_token(call, turn)
        answer(contestant.http, said)
        before = contestant.process.processor_seconds()
        found = load(contestant.http, said, turn.seconds, connections, turn.cores.rest, turn.folder)
        used = contestant.process.processor_seconds() - before
        seconds = found.requests / found.per_second
        return Result(found.per_second, found.p50, found.p99, used / found.requests * 1e6, used / seconds)

    return play


def _first_event(call: Call) -> Play:
    def play(contestant: Contestant, turn: Turn) -> Result:
        times = max(10, round(turn.seconds * 50))
        return Result(p50=first_event(contestant.http, _with_token(call, turn), times, turn.cores.rest))

    return play


def _grpc(contestant: Contestant, turn: Turn) -> Result:
    # Three windows: every contestant gets the same time.
    before = contestant.process.processor_seconds()
    try:
        found = perf_analyzer(
            turn.folder, "grpc", contestant.grpc, "add_sub", token=turn.token, core=turn.cores.rest,
            window_seconds=turn.seconds / 3, most_windows=3,
        )  # fmt: skip
    except PerfAnalyzerError as error:
        raise LoadError(str(error)) from None
    used = contestant.process.processor_seconds() - before
    return Result(found.per_second, 0.0, found.p99_seconds, used / (found.per_second * turn.seconds) * 1e6)


def _with_token(call: Call, turn: Turn) -> Call:
    return replace(call, headers={**call.headers, "Authorization": f"Bearer {turn.token}"})
