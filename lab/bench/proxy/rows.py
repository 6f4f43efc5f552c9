"""The rows of the benchmark: each is a kind of call that every contestant serves in turns."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lab.bench.report import Figures, Goal, progress, turns
from lab.local_plane.process import Server
from tests.proxy.rigs.perf_analyzer import PerfAnalyzerError, perf_analyzer
from tests.proxy.rigs.tables import SERVER

from .contestants import DIRECT, OURS, Cores
from .load import Call, LoadError, answer, first_event, load

MODEL = "simple"  # The model of the upstream that responds immediately.
ANSWER = json.dumps(
    {
        "model_name": MODEL,
        "model_version": "1",
        "outputs": [{"name": "OUTPUT", "datatype": "FP32", "shape": [1, 4], "data": [1.5, 2.5, 3.5, 4.5]}],
    },
    separators=(",", ":"),
).encode()
_REQUEST = {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}]}
WARM_SECONDS = 1.0
VARIANTS = 5000  # Different heads for the rows whose heads vary as real clients' do.
BUSY = 0.85  # The least share of its core that a contestant must use, or something else is the limit.


@dataclass(frozen=True)
class Result:
    """The result of one contestant's turn."""

    per_second: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    processor_microseconds: float = 0.0  # CPU time of the contestant per request.
    busy: float = 0.0  # The used share of its core. If it is well below 1, something else is the limit.


@dataclass(frozen=True)
class Turn:
    """The parameters of a turn."""

    seconds: float
    cores: Cores
    folder: Path
    token: str


_RATIOS = {
    "predict_vs_nginx": ("predict", "nginx", "per_second", "≥ 0.60"),
    "v2_vs_nginx": ("v2", "nginx", "per_second", "≥ 0.75"),
    "v2_p99_vs_nginx": ("v2", "nginx", "p99", "≤ 2"),
    "v2_vs_envoy": ("v2", "envoy", "per_second", "≥ 1.5"),
    "predict_varying_vs_nginx": ("predict_varying", "nginx", "per_second", "≥ 0.63"),
    "v2_varying_vs_nginx": ("v2_varying", "nginx", "per_second", "≥ 0.55"),
    "v2_varying_p99_vs_nginx": ("v2_varying", "nginx", "p99", "≤ 1.1"),
    "grpc_vs_direct": ("grpc", DIRECT, "per_second", "≥ 0.90"),
    "stream_first_token_vs_nginx": ("stream_first_token", "nginx", "p50", "≤ 1.5"),
}
"""Keys of the last line: the row, the peer, the compared result, and the goal of the ratio."""

Play = Callable[[Server, Turn], Result]
Results = Mapping[str, Sequence[Result]]  # By contestant, in the order of the runs.


@dataclass(frozen=True)
class Row:
    """One kind of call."""

    name: str
    words: str
    upstream: str  # `simple`, which responds immediately, or `triton`.
    names: Sequence[str]
    play: Play

    @property
    def ratios(self) -> Mapping[str, tuple[str, str, str]]:
        """The row's keys of the last line, from `_RATIOS`."""
        return {key: (peer, of, goal) for key, (row, peer, of, goal) in _RATIOS.items() if row == self.name}

    def goals(self) -> dict[str, Goal]:
        words = {"per_second": "requests/s", "p50": "median", "p99": "p99"}
        return {
            key: Goal(f"{self.words}: {words[of]}, against {peer}", goal)
            for key, (peer, of, goal) in self.ratios.items()
        }


def measure(row: Row, contestants: Mapping[str, Server], turn: Turn, runs: int) -> Figures:
    """Let all contestants take turns, in another order in each run. Report and skip one that fails."""
    results: dict[str, list[Result]] = {name: [] for name in row.names if name in contestants}
    for run, name in turns([*results], runs):
        if name not in results:
            continue
        if run >= 0:
            progress(f"{row.name}: run {run + 1} of {runs}, {name} …")
        seconds = turn.seconds if run >= 0 else min(turn.seconds, WARM_SECONDS)
        try:
            result = row.play(contestants[name], replace(turn, seconds=seconds))
        except LoadError as error:
            progress(f"NOT MEASURED: {row.name} OF {name}: {error}")
            del results[name]
            continue
        if run >= 0:
            results[name].append(result)
    return compared(row, results)


def compared(row: Row, results: Results) -> Figures:
    """Return a line for each contestant, and the ratios: the medians of those within a run."""
    found = Figures()
    for name in row.names:
        found.add(f"{row.words}: {name}", " · ".join(_words(results[name])) if name in results else "NOT MEASURED")
    for key, (peer, of, _) in row.ratios.items():
        pairs = zip(results.get(OURS, ()), results.get(peer, ()), strict=False)
        if ratios := [getattr(ours, of) / getattr(theirs, of) for ours, theirs in pairs]:
            found.figures[key] = statistics.median(ratios)
    for name, each in results.items():
        busy = statistics.median(result.busy for result in each)
        if row.upstream == "simple" and busy < BUSY:  # Behind the others, the upstream is the limit.
            found.add("", f"{name} used {busy:.0%} of its core: callers, or other programs here, were the limit")
    return found


_COLUMNS = (
    ("p50", "p50 {:.2f} ms", 1e3),
    ("p99", "p99 {:.2f} ms", 1e3),
    ("processor_microseconds", "{:.0f} µs CPU", 1),
    ("busy", "{:.0%} of its core", 1),
)


def _words(results: Sequence[Result]) -> Iterator[str]:
    rates = [result.per_second for result in results]
    if rates[0]:
        yield f"{statistics.median(rates):,.0f}/s ({min(rates):,.0f} – {max(rates):,.0f})"
    for of, words, scale in _COLUMNS:
        if value := statistics.median(getattr(result, of) for result in results):
            yield words.format(value * scale)


def rows() -> list[Row]:
    """Return every row."""
    infer = f"/v2/models/{MODEL}/infer"
    wrapped = {"inference_server_name": SERVER, "model_name": MODEL, "payload": _REQUEST}
    predict, predict_varying = (
        partial(_http, _json("/predict", wrapped, ANSWER, variants)) for variants in (0, VARIANTS)
    )
    v2, v2_varying = (partial(_http, _json(infer, _REQUEST, ANSWER, variants)) for variants in (0, VARIANTS))
    repeat = partial(_first_event, _json("/v2/models/repeat/generate_stream", {"IN": [1, 2, 3], "DELAY": [0, 5, 5]}))
    pair, triton = ["nginx", OURS], "triton"
    return [
        Row("predict", "/predict, 32 connections", "simple", pair, predict),
        Row("v2", "/v2/…/infer, 32 connections", "simple", [*pair, "envoy"], v2),
        Row("predict_varying", "/predict, heads vary, 32 connections", "simple", pair, predict_varying),
        Row("v2_varying", "/v2/…/infer, heads vary, 32 connections", "simple", [*pair, "envoy"], v2_varying),
        Row("grpc", "real Triton, gRPC, 32 streams (perf_analyzer)", triton, [DIRECT, OURS], _grpc),
        Row("stream_first_token", "real Triton, first event of generate_stream", triton, pair, repeat),
    ]


def _json(path: str, body: object, ends: bytes = b"", variants: int = 0) -> Call:
    return Call(path, json.dumps(body).encode(), {"Content-Type": "application/json"}, ends, variants)


def _http(call: Call, contestant: Server, turn: Turn) -> Result:
    authenticated = _with_token(call, turn)
    answer(contestant.http, authenticated)
    before = contestant.process.processor_seconds()
    found = load(contestant.http, authenticated, turn.seconds, turn.cores.rest, turn.folder)
    used = contestant.process.processor_seconds() - before
    seconds = found.requests / found.per_second
    return Result(found.per_second, found.p50, found.p99, used / found.requests * 1e6, used / seconds)


def _first_event(call: Call, contestant: Server, turn: Turn) -> Result:
    times = max(10, round(turn.seconds * 50))
    return Result(p50=first_event(contestant.http, _with_token(call, turn), times, turn.cores.rest))


def _grpc(contestant: Server, turn: Turn) -> Result:
    # Three windows, so that every contestant gets the same time.
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
