"""The Triton of the tests is a real one: it answers over HTTP and gRPC, and it goes away again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http

from lab.local_plane.process import listens
from lab.local_plane.triton import Triton, triton

from .perf_analyzer import PerfAnalyzerError, perf_analyzer
from .pytest_rigs import not_run
from .repository import MODELS, write

BOTH = pytest.mark.parametrize("protocol", ["http", "grpc"])
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def client(real_triton: Triton) -> Callable[[str], Any]:
    def connected(protocol: str) -> Any:
        module: Any = getattr(tritonclient, protocol)
        return module.InferenceServerClient(getattr(real_triton, protocol))

    return connected


def ask(
    client: Any, model: str, /, outputs: str = "OUTPUT", parameters: dict[str, Any] | None = None, **inputs: Any
) -> Any:
    """Call a model with arrays, and return one output."""
    module: Any = sys.modules[type(client).__module__.rpartition("._")[0]]
    given = []
    for name, array in inputs.items():
        kind = {"i": "INT32", "f": "FP32", "O": "BYTES"}[array.dtype.kind]
        given.append(module.InferInput(name, array.shape, kind))
        given[-1].set_data_from_numpy(array)
    return client.infer(model, given, **(parameters or {})).as_numpy(outputs)


@BOTH
@pytest.mark.parametrize(("model", "kind"), [("add_sub", numpy.int32), ("add_sub_fp32", numpy.float32)])
def test_it_adds_and_subtracts(client: Callable[[str], Any], protocol: str, model: str, kind: Any) -> None:
    one, other = numpy.arange(16, dtype=kind), numpy.full(16, 3, kind)
    for output, expected in (("OUTPUT0", one + other), ("OUTPUT1", one - other)):
        found = ask(client(protocol), model, output, INPUT0=one, INPUT1=other)
        assert found.tolist() == expected.tolist()


@pytest.mark.thorough
@BOTH
def test_it_gives_600_kilobytes_back(client: Callable[[str], Any], protocol: str) -> None:
    picture = numpy.random.default_rng(5).random(3 * 224 * 224, numpy.float32)
    assert ask(client(protocol), "echo", INPUT=picture).tobytes() == picture.tobytes()


@pytest.mark.thorough
@BOTH
def test_it_gives_texts_back(client: Callable[[str], Any], protocol: str) -> None:
    texts = numpy.array([b"", b"\x00\xff", "süß".encode()], dtype=object)
    assert ask(client(protocol), "echo_bytes", INPUT=texts).tolist() == texts.tolist()


@pytest.mark.thorough
@BOTH
def test_it_adds_up_what_belongs_to_one_sequence(client: Callable[[str], Any], protocol: str) -> None:
    five = numpy.array([[5]], numpy.int32)
    sums = {1: 0, 2: 0}
    for step in range(3):
        for sequence in sums:
            said = {"sequence_id": sequence, "sequence_start": step == 0, "sequence_end": step == 2}
            found = ask(client(protocol), "accumulate", parameters=said, INPUT=five * sequence)
            sums[sequence] += 5 * sequence
            assert found.tolist() == [[sums[sequence]]]


@pytest.mark.thorough
@BOTH
@pytest.mark.parametrize("version", ["1", "2"])
def test_it_has_two_versions_of_a_model(client: Callable[[str], Any], protocol: str, version: str) -> None:
    said = {"model_version": version}
    found = ask(client(protocol), "versions", "VERSION", said, INPUT=numpy.array([7], numpy.int32))
    assert found.tolist() == [int(version)]


@pytest.mark.thorough
def test_it_streams_events_one_by_one_and_an_error_in_the_middle(real_triton: Triton) -> None:
    events = stream_events(real_triton.http, "repeat", [3, -1, 4], [0, 0, 300])
    assert [event.get("OUT") for event, _ in events] == [3, None, 4]
    assert events[1][0] == {"error": "-1 is less than 0"}
    first, _, last = (seconds for _, seconds in events)
    assert last - first > 0.2, "the first came when all were there"


def stream_events(where: str, model: str, numbers: list[int], delays: list[int]) -> list[tuple[dict[str, Any], float]]:
    """Return the events of a generate_stream call, each with when it came."""
    import http.client

    asking = http.client.HTTPConnection(where, timeout=30)
    asking.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"IN": numbers, "DELAY": delays}))
    answer = asking.getresponse()
    assert answer.status == 200
    events = []
    while line := answer.readline():
        if line.startswith(b"data: "):
            events.append((json.loads(line.removeprefix(b"data: ")), time.monotonic()))
    asking.close()
    return events


@pytest.mark.thorough
def test_it_streams_over_grpc(client: Callable[[str], Any]) -> None:
    caller = client("grpc")
    found: list[Any] = []
    caller.start_stream(lambda result, error: found.append((result, error)))
    inputs = []
    for name, kind, array in (
        ("IN", "INT32", numpy.array([1, 2, 3], numpy.int32)),
        ("DELAY", "UINT32", numpy.zeros(3, numpy.uint32)),
    ):
        inputs.append(tritonclient.grpc.InferInput(name, array.shape, kind))
        inputs[-1].set_data_from_numpy(array)
    caller.async_stream_infer("repeat", inputs)
    caller.stop_stream()
    assert [result.as_numpy("OUT").tolist() for result, error in found if error is None] == [[1], [2], [3]]


def test_every_model_is_ready(client: Callable[[str], Any]) -> None:
    assert all(client("grpc").is_model_ready(model.name) for model in MODELS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("protocol", "model", "options"),
    [
        ("http", "add_sub", ()),
        ("grpc", "accumulate", ("--sequence-length", "5")),
        ("grpc", "repeat", ("--streaming", "--shape", "IN:2", "--shape", "DELAY:2", "--input-data", "zero")),
    ],
)
def test_the_real_perf_analyzer_completes(
    real_triton: Triton, tmp_path: Path, protocol: str, model: str, options: tuple[str, ...]
) -> None:
    where = getattr(real_triton, protocol)
    found = perf_analyzer(tmp_path, protocol, where, model, *options)
    assert found.per_second > 0


def test_perf_analyzer_says_why_it_did_not_complete(real_triton: Triton, tmp_path: Path) -> None:
    with pytest.raises(PerfAnalyzerError, match="no_such_model"):
        perf_analyzer(tmp_path, "http", real_triton.http, "no_such_model")


def test_it_ends_with_its_block_even_when_that_fails(tmp_path: Path) -> None:
    seen: list[Triton] = []

    def fail() -> None:
        with not_run("A REAL TRITON"), triton(tmp_path, write(tmp_path / "models", MODELS[:1])) as server:
            seen.append(server)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not listens(seen[0].http_port)
    with pytest.raises(ProcessLookupError):
        os.killpg(seen[0].process.pid, 0)


@pytest.mark.thorough
def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = "; ".join(
        [
            "import sys, time",
            "from pathlib import Path",
            "from local_plane.process import running",
            "run = running('a sleep', ['sleep', '600'], Path(sys.argv[1]) / 'log')",
            "started = run.__enter__()",
            "print(started.pid, flush=True)",
            "time.sleep(600)",
        ]
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        end = time.monotonic() + 10
        try:
            # Before that its leash is not on.
            while not Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep\0") and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            parent.send_signal(signal.SIGKILL)
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
