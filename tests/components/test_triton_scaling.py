"""A pool that may have no replica keeps one for as long as anybody calls it: its query, held by promtool."""

from pathlib import Path

import pytest

from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.charts.rendering import declared

from .test_alert_rules import NAMESPACE, Case, of, promtool_test, series_in

ROOT = Path(__file__).parents[2]
POOL = {"server": "ondemand", "pool": "device"}
WAITING = of("tidegate_proxy_lease_waiting", **POOL)
WAITED = of("tidegate_proxy_lease_wait_seconds_count", **POOL)
AT_A_REPLICA = of("tidegate_proxy_replica_in_flight", **POOL, replica="10.0.0.7:8000")
IDLE = {WAITING: "0x30", WAITED: "1x30"}


@pytest.fixture(scope="module")
def query() -> str:
    """What KEDA asks of the pool."""
    definition = read_definition(ROOT / "tests/definitions/everything.yaml")
    objects = declared(resolve(definition.stacks[0], definition.lock))
    (scaled,) = (one for one in objects if one["kind"] == "ScaledObject" and one["spec"].get("minReplicaCount") == 0)
    return str(scaled["spec"]["triggers"][-1]["metadata"]["query"])


@pytest.mark.parametrize(
    ("series", "wanted"),
    [
        ({**IDLE, AT_A_REPLICA: "0x30"}, {10: 0}),
        (IDLE, {10: 0}),  # there is no replica
        ({**IDLE, WAITING: "0x9 1x20"}, {9: 0, 12: 1}),
        ({**IDLE, AT_A_REPLICA: "0x9 2x10 0x10"}, {9: 0, 18: 2, 25: 0}),  # two streams, which wait for nothing
        ({AT_A_REPLICA: "1x30"}, {10: None}),  # a proxy that does not tell who waits: nobody knows
    ],
    ids=["nobody", "nobody and no replica", "a caller that waits", "calls under way", "no series"],
)
def test_whoever_calls_a_pool_keeps_its_replica(
    series: dict[str, str], wanted: dict[int, int | None], query: str, tmp_path: Path
) -> None:
    others = Case("", "", {AT_A_REPLICA: "9x30", WAITING: "9x30", WAITED: "0+9x30"})
    samples = [
        {
            "expr": query,
            "eval_time": f"{minute}m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for minute, value in wanted.items()
    ]
    both = [*series_in(NAMESPACE, Case("", "", series)), *series_in("elsewhere", others)]
    assert not promtool_test(tmp_path, *both, promql_expr_test=samples)
