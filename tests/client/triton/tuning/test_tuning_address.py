"""A model at an address is measured as it is, and the command line says what was found."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from tidegate.errors import UnreachableError, UsageError
from tidegate.triton.cli.tune import tune as command
from tidegate.triton.tuning.plan import SweepPlan
from tidegate.triton.tuning.server import Address
from tidegate.triton.tuning.sweep import tune
from typer.testing import CliRunner

from lab.local_plane.triton import Triton
from tests.client.tiers import first_only

from .programs import Programs

SHORT = 0.25


@pytest.fixture
def call(programs: Programs) -> Callable[..., Any]:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)

    def run(*arguments: object) -> Any:
        words = [str(argument) for argument in arguments]
        return CliRunner().invoke(app, [*words, "--perf-analyzer", str(programs.perf_analyzer)])

    return run


@pytest.mark.parametrize("protocol", first_only("grpc", "http"))
def test_batches_and_concurrency_are_swept_and_too_many_rows_are_said(
    running: Triton, programs: Programs, protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "grpc_proxy", "all_proxy"):  # of which there is none
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    plan = SweepPlan(batches=(1, 8, 9), concurrencies=(2,), protocol=protocol, window_seconds=SHORT)
    address = Address(getattr(running, protocol), protocol, f"http://127.0.0.1:{running.metrics_port}/metrics")
    report = tune("sleeper", plan, server=address, perf_analyzer=programs.perf_analyzer)
    one, eight = report.measurements
    assert (one.setting.batch, eight.setting.batch) == (1, 8)
    assert eight.inferences_per_second > 4 * one.inferences_per_second
    assert one.memory_bytes is None  # a process of somebody else
    assert report.best == eight
    (failure,) = report.failures
    assert failure.setting.batch == 9
    assert failure.why == "the model takes 8 rows at the most (max_batch_size)"


@pytest.mark.thorough
def test_a_model_that_streams_is_measured(running: Triton, programs: Programs) -> None:
    plan = SweepPlan(concurrencies=(1,), window_seconds=SHORT)
    report = tune("talker", plan, server=Address(running.grpc), perf_analyzer=programs.perf_analyzer)
    assert report.measurements[0].inferences_per_second > 10
    http = Address(running.http, "http")
    with pytest.raises(UsageError, match="decoupled, which gRPC alone can stream"):
        tune("talker", SweepPlan(protocol="http"), server=http, perf_analyzer=programs.perf_analyzer)


@pytest.mark.thorough
def test_open_dimensions_are_asked_for_and_then_used(running: Triton, programs: Programs, tmp_path: Path) -> None:
    for wrong, said in (({}, "--shape IN:3,16"), ({"INN": (3,)}, "has no input INN")):
        with pytest.raises(UsageError, match=said):
            tune("open", SweepPlan(shapes=wrong), server=Address(running.grpc), perf_analyzer=programs.perf_analyzer)
    plan = SweepPlan(concurrencies=(1,), window_seconds=SHORT, shapes={"IN": (3, 5)})
    assert tune("open", plan, server=Address(running.grpc), perf_analyzer=programs.perf_analyzer).best is not None
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": {"content": [0.0] * 6, "shape": [3, 2]}}]}), "utf-8")
    plan = SweepPlan(concurrencies=(1,), window_seconds=SHORT, input_data=data)
    assert tune("open", plan, server=Address(running.grpc), perf_analyzer=programs.perf_analyzer).best is not None


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_model_or_a_triton_that_is_not_there_is_said(running: Triton, programs: Programs, protocol: Any) -> None:
    where = getattr(running, protocol)
    with pytest.raises(UnreachableError, match="no_such_model"):
        tune("no_such_model", SweepPlan(), server=Address(where, protocol), perf_analyzer=programs.perf_analyzer)
    with pytest.raises(UnreachableError, match="check that a Triton's"):
        tune("sleeper", SweepPlan(), server=Address("127.0.0.1:1", protocol), perf_analyzer=programs.perf_analyzer)


@pytest.mark.thorough
def test_people_get_a_table_and_a_plot(running: Triton, call: Callable[..., Any], tmp_path: Path) -> None:
    svg = tmp_path / "sleeper.svg"
    arguments = ("sleeper", "--url", running.grpc, "--concurrency", "1,2", "--window", SHORT, "--latency-ms", 60_000)
    ended = call(*arguments, "--plot", svg)
    assert ended.exit_code == 0, ended.stderr
    assert re.search(r"as is .* 1 .* 2 ", ended.stdout)
    best = r"^best within 60000 ms \(p99\): batch 1, concurrency [12] – [0-9.]+ inferences/s$"
    assert re.search(best, ended.stdout, re.M)
    assert "1/2 batch 1, concurrency 1: " in ended.stderr
    assert svg.read_text("utf-8").startswith("<?xml")
    assert "p99 latency, ms" in svg.read_text("utf-8")


@pytest.mark.thorough
def test_programs_get_json_and_exit_code_one_above_the_limit(running: Triton, call: Callable[..., Any]) -> None:
    arguments = ("sleeper", "--url", running.grpc, "--concurrency", "1", "--window", SHORT, "--latency-ms", 1)
    ended = call(*arguments, "--json")
    assert ended.exit_code == 1
    report = json.loads(ended.stdout)
    assert report["best"] is None
    assert report["latencyLimitSeconds"] == 0.001
    assert report["measurements"][0]["setting"] == {"instances": None, "maxBatch": None, "batch": 1, "concurrency": 1}
    assert report["measurements"][0]["p50Seconds"] > 0.01
    ended = call(*arguments)
    assert ended.exit_code == 1
    assert "nothing keeps within 1 ms (p99); the least is " in ended.stdout
    assert "over the limit" in ended.stdout


def test_metrics_that_cannot_be_read_are_said(running: Triton, call: Callable[..., Any]) -> None:
    for url in ("http://127.0.0.1:1/metrics", "localhost"):
        ended = call("sleeper", "--url", running.grpc, "--metrics-url", url)
        assert ended.exit_code == 6
        assert "the metrics cannot be read" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "http://ann:hunter2@localhost:8001"), "is no host and port"),
        (("--url", "localhost:8001", "--instances", "2"), "change nothing"),
        (("--url", "localhost:8001", "--write", "config.pbtxt"), "nothing is changed there"),
        (("--url", "localhost:8001", "--plot", "tuned.pdf"), "let its name end in .png or .svg"),
        (("--batch", "one"), "is no list of whole numbers"),
        (("--batch", "0"), "is not within 1–1024"),
        (("--percentile", "98"), "is none of 50, 90, 95, 99"),
        (("--shape", "3,4"), "has no input's name"),
        (("--input-data", "/no/such/file"), "there is no such file"),
        (("--tritonserver", "no-such-triton"), "there is no such folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused(call: Callable[..., Any], arguments: tuple[str, ...], said: str) -> None:
    ended = call("sleeper", *arguments)
    assert ended.exit_code == 2, ended.output
    assert said in ended.stderr
    assert "Traceback" not in ended.output
    assert "hunter2" not in ended.output


def test_missing_programs_are_named_with_where_to_get_them(
    sleeper: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    ended = CliRunner().invoke(app, [str(sleeper), "--tritonserver", str(programs.tritonserver)])
    assert ended.exit_code == 2
    assert "there is no program perf_analyzer" in ended.stderr
    assert "pip install perf-analyzer" in ended.stderr
    ended = CliRunner().invoke(app, [str(sleeper), "--perf-analyzer", str(programs.perf_analyzer)])
    assert ended.exit_code == 2
    assert "there is no program tritonserver" in ended.stderr
