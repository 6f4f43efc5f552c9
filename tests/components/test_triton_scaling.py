"""KEDA's queries for a pool, run by promtool: its callers, the memory of models in use, and missing data."""

from pathlib import Path
from typing import Any

import pytest

from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.charts.rendering import declared

from .test_alert_rules import NAMESPACE, of, promtool_test, series_in

ROOT = Path(__file__).parents[2]
POOL = {"server": "ondemand", "pool": "device"}
WAITING = of("tidegate_proxy_lease_waiting", **POOL)
WAITED = of("tidegate_proxy_lease_wait_seconds_count", **POOL)
AT_A_REPLICA = of("tidegate_proxy_replica_in_flight", **POOL, replica="10.0.0.7:8000")
IDLE = {WAITING: "0x30", WAITED: "1x30"}


GIB = 1 << 30
LEASES, FOOTPRINT = "tidegate_eviction_model_leases", "tidegate_eviction_model_footprint_bytes"
PODS = ["ondemand-device-0", "ondemand-device-1"]
ROOM = {
    **{of("tidegate_eviction_bytes", pod=pod, kind="capacity"): f"{4 * GIB}x30" for pod in PODS},
    **{of(FOOTPRINT, pod=pod, model=name, **{"from": "declared"}): f"{GIB}x30" for pod in PODS for name in "abcdef"},
    **{of(LEASES, pod=PODS[0], model=name): "1x30" for name in "abc"},
}
PROXIES = of("tidegate_proxy_in_flight", pod="inference-proxy-a")
TRITONS = of("nv_pinned_memory_pool_total_bytes", pod=PODS[0])
POLICIES = of("tidegate_eviction_triton_up", pod=PODS[0])
ALL_UP = dict.fromkeys((PROXIES, AT_A_REPLICA, TRITONS, POLICIES), "1x30")
REFUSED = {"server": "ondemand", "type": "busy", "reason": "no-room"}


@pytest.fixture(scope="module")
def queries() -> list[str]:
    definition = read_definition(ROOT / "tests/definitions/everything.yaml")
    objects = declared(resolve(definition.stacks[0], definition.lock))
    (scaled,) = (one for one in objects if one["kind"] == "ScaledObject" and one["spec"].get("minReplicaCount") == 0)
    return [str(each["metadata"]["query"]) for each in scaled["spec"]["triggers"]]


def samples(query: str, wanted: dict[int, int | None]) -> list[dict[str, Any]]:
    return [
        {
            "expr": query,
            "eval_time": f"{minute}m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for minute, value in wanted.items()
    ]


@pytest.mark.parametrize(
    ("series", "wanted"),
    [
        ({**IDLE, AT_A_REPLICA: "0x30"}, {10: 0}),
        (IDLE, {10: 0}),  # There is no replica.
        ({**IDLE, WAITING: "0x9 1x20"}, {9: 0, 12: 1}),
        ({**IDLE, AT_A_REPLICA: "0x9 2x10 0x10"}, {9: 0, 18: 2, 25: 0}),  # Two streams, which wait for nothing.
        ({AT_A_REPLICA: "1x30"}, {10: None}),  # A proxy that does not export waiting callers.
    ],
    ids=["no caller", "no caller and no replica", "a caller that waits", "calls in flight", "no series"],
)
def test_any_caller_of_a_pool_keeps_its_replica(
    series: dict[str, str], wanted: dict[int, int | None], queries: list[str], tmp_path: Path
) -> None:
    others = {AT_A_REPLICA: "9x30", WAITING: "9x30", WAITED: "0+9x30"}
    both = [*series_in(NAMESPACE, series), *series_in("elsewhere", others)]
    assert not promtool_test(tmp_path, *both, promql_expr_test=samples(queries[-1], wanted))


@pytest.mark.parametrize(
    ("series", "wanted"),
    [
        ({}, {10: 0}),  # There is no replica.
        (ROOM, {10: 75}),
        ({**ROOM, of(LEASES, pod=PODS[1], model="c"): "1x30"}, {10: 75}),  # It is on both replicas.
        ({**ROOM, of(LEASES, pod=PODS[1], model="d"): "1x9 stale"}, {9: 100, 10: 100, 13: 75}),
        ({**ROOM, of("tidegate_proxy_model_problems_total", model="e", **REFUSED): "0x9 1x20"}, {9: 75, 11: 100}),
        ({**ROOM, of("tidegate_proxy_model_problems_total", model="x", **REFUSED): "0+1x30"}, {10: 75}),
    ],
    ids=["none", "three models in use", "at two replicas", "out of use", "refused", "of another pool"],
)
def test_a_pool_must_hold_its_used_models_and_those_that_lacked_memory(
    series: dict[str, str], wanted: dict[int, int | None], queries: list[str], tmp_path: Path
) -> None:
    other = ROOM
    both = [*series_in(NAMESPACE, series), *series_in("elsewhere", other)]
    assert not promtool_test(tmp_path, *both, promql_expr_test=samples(queries[2], wanted))


@pytest.mark.parametrize(
    ("series", "wanted"),
    [
        (ALL_UP, {10: 0}),
        (dict.fromkeys(ALL_UP, "_x10 1x20"), {9: None, 10: None, 12: 0}),  # A new Prometheus, or a new pool.
        (dict.fromkeys(ALL_UP, "1x5 _x5 1x20"), {5: 0, 9: None, 11: None, 13: 0}),  # Prometheus was down for a while.
        ({**ALL_UP, TRITONS: "1x9 stale"}, {10: 0, 13: None}),
        ({**ALL_UP, POLICIES: "1x9 stale"}, {10: 0, 13: None}),
        ({**ALL_UP, PROXIES: "1x9 stale"}, {10: 0, 13: None}),
        ({PROXIES: "0x30"}, {10: 0}),
        ({PROXIES: "_x10 0x20"}, {9: None, 10: 0}),
        (
            {**ALL_UP, TRITONS: "_x10 1x20", POLICIES: "_x10 1x20", AT_A_REPLICA: "_x9 0x20"},
            {8: 0, 9: None, 10: None, 12: 0},
        ),
    ],
    ids=["all", "new", "a hole", "no Triton", "no policy", "no proxy", "none", "none, new", "the first replica"],
)
def test_missing_metrics_remove_no_replica(
    series: dict[str, str], wanted: dict[int, int | None], queries: list[str], tmp_path: Path
) -> None:
    both = [*series_in(NAMESPACE, series), *series_in("elsewhere", ALL_UP)]
    assert not promtool_test(tmp_path, *both, promql_expr_test=samples(queries[3], wanted))


def test_all_queries_are_zero_for_a_pool_without_replicas_and_callers(queries: list[str], tmp_path: Path) -> None:
    alone = series_in(NAMESPACE, {**IDLE, PROXIES: "0x30"})
    assert not promtool_test(
        tmp_path, *alone, promql_expr_test=[each for it in queries for each in samples(it, {10: 0})]
    )
