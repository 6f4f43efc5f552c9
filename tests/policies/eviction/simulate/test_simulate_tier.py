from dataclasses import replace

import pytest
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.zoo import Workload, generate

from .plain import trace_of

ONE_FITS = SimulationSetting(find("lru-idle"), 10, idle_seconds=0, wait_seconds=60, tier_bytes=30, tier_speedup=4.0)
A, B, C = (10, 8.0, 0.1), (10, 4.0, 0.1), (8, 2.0, 0.1)
TURNS = trace_of([(100.0 * place, place % 3) for place in range(9)], A, B, C)


def test_a_model_whose_files_are_near_loads_in_its_part_of_the_time() -> None:
    outcome = simulate(TURNS, ONE_FITS)
    assert [seconds for _, seconds in outcome.loads] == [8.0, 4.0, 2.0] + 2 * [2.0, 1.0, 0.5]
    assert list(outcome.waits) == pytest.approx([8.0, 4.0, 2.0] + 2 * [2.0, 1.0, 0.5])


def test_each_replica_has_a_separate_tier() -> None:
    setting = replace(ONE_FITS, replicas=2, pinned=frozenset({"m0"}))
    assert [seconds for _, seconds in simulate(trace_of([(50.0, 0)], A, B), setting).loads] == [8.0, 8.0]


def test_a_model_larger_than_the_tier_is_never_copied_and_evicts_none() -> None:
    outcome = simulate(TURNS, replace(ONE_FITS, tier_bytes=9))
    assert [seconds for _, seconds in outcome.loads] == [8.0, 4.0, 2.0, 8.0, 4.0, 0.5, 8.0, 4.0, 0.5]


def test_the_copy_goes_that_was_read_longest_ago_though_its_model_is_in_memory() -> None:
    pinned = replace(ONE_FITS, capacity_bytes=20, pinned=frozenset({"m0"}), tier_bytes=20)
    outcome = simulate(trace_of([(100, 1), (200, 2), (300, 1), (400, 2)], A, B, C), pinned)
    assert [seconds for _, seconds in outcome.loads] == [8.0, 4.0, 2.0, 1.0, 0.5]


def test_a_copy_that_a_load_reads_stays_and_the_other_load_reads_the_source() -> None:
    both = replace(ONE_FITS, capacity_bytes=20, tier_bytes=10)
    outcome = simulate(trace_of([(100, 0), (101, 1), (200, 2), (300, 0)], A, B, C), both)
    assert [seconds for _, seconds in outcome.loads] == [8.0, 4.0, 2.0, 8.0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_tier_that_is_no_faster_changes_nothing(replicas: int) -> None:
    trace = generate(Workload(models=15, requests=1500, load_mb_per_second=50, seed=3))
    setting = SimulationSetting(
        find("cost-aware"), round(0.4 * trace.total_bytes / replicas), idle_seconds=15, wait_seconds=20,
        lease_seconds=15, replicas=replicas,
    )  # fmt: skip
    assert simulate(trace, replace(setting, tier_bytes=trace.total_bytes)) == simulate(trace, setting)
    faster = simulate(trace, replace(setting, tier_bytes=trace.total_bytes, tier_speedup=8.0))
    assert faster.lost_seconds < simulate(trace, setting).lost_seconds
