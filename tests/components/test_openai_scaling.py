"""KEDA's queries for pools of engines, run by promtool: waiting requests, and replicas for running ones."""

from pathlib import Path

import pytest

from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.resolve import resolve
from stacks.validate import validate
from tests.charts.rendering import declared

from .test_alert_rules import of, promtool_test, series_in
from .test_triton_scaling import samples

_FILE = Path(__file__).parents[1] / "definitions/two-kinds.yaml"
NAMESPACE = "tidegate-dev"
VLLM = "vllm:num_requests_waiting", "vllm:num_requests_running"
SGLANG = "sglang:num_queue_reqs", "sglang:num_running_reqs"
OWN = "llamacpp:requests_deferred", "llamacpp:requests_processing"
WAITS, HELD = 0, 1  # Indexes of the queries.


@pytest.fixture(scope="module")
def queries() -> dict[str, list[str]]:
    """KEDA's queries, by the name of the pool's StatefulSet."""
    text = _FILE.read_text("utf-8")
    own = f"engine: custom\n      metricsPath: /metrics\n      waitingMetric: {OWN[0]}\n      runningMetric: {OWN[1]}"
    queue = "autoscaling: {kind: queue, min: 1, max: 2, prometheusAddress: 'http://p:9090'}"
    text = text.replace("engine: custom", own).replace("autoscaling: {kind: cpu, min: 1, max: 2}", queue)
    stack = validate(parse(text, "f.yaml"), ImagesLock()).stacks[0]
    scaled = [one for one in declared(resolve(stack, ImagesLock())) if one["kind"] == "ScaledObject"]
    assert all(each["metricType"] == "AverageValue" for one in scaled for each in one["spec"]["triggers"])
    return {one["metadata"]["name"]: [each["metadata"]["query"] for each in one["spec"]["triggers"]] for one in scaled}


def engines(names: tuple[str, str], waiting: tuple[str, ...], running: tuple[str, ...], pool: str) -> dict[str, str]:
    """Series of the engines of a pool: waiting and running requests of each, by the minute."""
    pods = [f"{pool}-{number}" for number in range(len(waiting))]
    return {
        of(name, pod=pod): value
        for name, values in zip(names, (waiting, running), strict=True)
        for pod, value in zip(pods, values, strict=True)
    }


@pytest.mark.parametrize(
    ("waiting", "running", "waits", "held"),
    [
        (("0x60",), ("0x60",), {10: 0}, {10: 0}),
        (("9x60",), ("4x60",), {10: 9}, {10: 100}),
        (("9x10 0x50", "6x10 0x50"), ("4x60", "4x60"), {10: 15, 14: 0}, {10: 200, 30: 200}),
        (("9x10 0x90", "0x100"), ("4x10 1x90", "4x10 1x90"), {14: 0}, {14: 50, 80: 0}),
        (("0x90", "0x90"), ("4x90", "3x90"), {30: 0}, {30: 175, 80: 0}),
        (("9x2 0x60", "0x4 _ stale"), ("7x60", "7x4 _ stale"), {}, {4: 200, 6: 100}),
        (("9x5 0x5 _x49 0x60",) * 2, ("4x11 _x49 4x60",) * 2, {67: 0}, {67: 200, 80: 200}),
        ((), (), {10: None}, {10: None}),
    ],
    ids=[
        "idle",
        "one that is full",
        "two that are full",
        "few are left, an hour",
        "never full, for less than an hour, and longer",
        "one has gone",
        "two that are full, and nothing was read for most of the hour",
        "no series",
    ],
)
@pytest.mark.parametrize(
    ("names", "pool"), [(VLLM, "agents-planner"), (SGLANG, "agents-planner"), (OWN, "edge-main")], ids=lambda it: it[0]
)
def test_waiting_requests_scale_a_pool_and_running_ones_once_an_engine_was_full(
    names: tuple[str, str],
    pool: str,
    waiting: tuple[str, ...],
    running: tuple[str, ...],
    waits: dict[int, int | None],
    held: dict[int, int | None],
    queries: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    mine = series_in(NAMESPACE, engines(names, waiting, running, pool))
    others = engines(names, ("7x100",), ("9x100",), f"{pool}-b")
    elsewhere = engines(names, ("7x100",), ("9x100",), pool)
    every = [*mine, *series_in(NAMESPACE, others), *series_in("elsewhere", elsewhere)]
    expected = [*samples(queries[pool][WAITS], waits), *samples(queries[pool][HELD], held)]
    assert not promtool_test(tmp_path, *every, promql_expr_test=expected)


@pytest.mark.parametrize(
    ("pool", "up", "found"),
    [("agents-planner", "1x60", 0), ("agents-planner", "0x60", None), ("edge-main", "1x60", None)],
    ids=["not called yet", "loading", "one's own, under another name"],
)
def test_queries_are_zero_for_an_engine_without_calls_and_empty_while_it_loads(
    pool: str, up: str, found: int | None, queries: dict[str, list[str]], tmp_path: Path
) -> None:
    series = series_in(NAMESPACE, {of("tidegate_engine_up", pod=f"{pool}-0"): up})
    expected = [each for query in queries[pool] for each in samples(query, {10: found})]
    assert not promtool_test(tmp_path, *series, promql_expr_test=expected)
