from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.simulate.trace import Trace

from capacity.advice import Advice, advise
from capacity.advising import lines_of, subjects
from capacity.overlay import laid_over, overlay_text
from capacity.pressures import reading
from capacity.remedies import PoolUnderReview
from capacity.samples import Recorded
from stacks.definition.base import byte_count
from stacks.definition.pools import OnDemand
from stacks.stack import Definition
from stacks.validate import read_definition

from .definition import pasted, write
from .situations import POOL, SERVER, SMALL, Made, busy, calls, definition, loads, trace, tree, work

GB = 10**9
SIZES = {name: (number + 1) * GB for number, name in enumerate(SMALL)}
OF_SIZES = {name: f"{size // GB}G" for name, size in SIZES.items()}
TURNS = trace(dict.fromkeys(SMALL, (3 * GB, 10.0)), 25, 30.0)
SLOW = trace({name: (size, 2 + size / 1e8) for name, size in SIZES.items()}, 25, 60.0)


def advice_for(found: Definition, made: Made, calls: Trace | None = TURNS) -> tuple[PoolUnderReview, Advice]:
    recorded = Recorded(made.samples(), calls)
    (subject,) = subjects(found.stacks[0], recorded)
    return subject, advise(subject, calls)


def after(found: Definition, subject: PoolUnderReview, change: Mapping[str, Any]) -> Definition:
    return pasted(found, overlay_text(laid_over(subject.stack.environment.name, change)))


def pressed(names: Iterable[str]) -> Made:
    """Every model is evicted again and again, and half of the callers wait."""
    made = Made()
    calls(made, dict.fromkeys(names, 200.0), late=500.0, waited=5000.0)
    for name in names:
        loads(made, name, 100.0, 10.0, 3e9, evicted=99.0)
    return made


def test_a_working_set_that_is_larger_than_the_slice_wants_a_larger_one(tmp_path: Path) -> None:
    found = definition(tmp_path)
    subject, advice = advice_for(found, pressed(SMALL))
    assert advice.kind == "a larger slice"
    assert advice.now
    assert advice.then
    assert advice.then.lost_seconds < 0.2 * advice.now.lost_seconds
    (pool,) = after(found, subject, advice.change).stacks[0].platform.servers[0].pools
    assert pool.placement.profile == "2g.20gb"  # type: ignore[union-attr]


def test_a_pinned_model_without_calls_should_be_unpinned(tmp_path: Path) -> None:
    found = definition(tmp_path, {**SMALL, "yak": "5G"}, pinned="yak")
    three = trace(dict.fromkeys(("ant", "bee", "cat"), (3 * GB, 10.0)), 25, 30.0)
    named = Trace((*three.models, *trace({"yak": (5 * GB, 9.0)}, 1, 1.0).models), three.seconds, three.which)
    _, advice = advice_for(found, pressed(["ant", "bee", "cat"]), named)
    assert advice.kind == "unpin yak"
    assert advice.change == {"models": [{"name": "yak", "pinned": False}]}


def test_a_slow_model_with_many_callers_should_be_pinned(tmp_path: Path) -> None:
    names = ("ant", "bee", "cat", "queen")
    found = definition(tmp_path, dict.fromkeys(names, "3G"))
    made = pressed(names)
    made.grew("tidegate_eviction_model_evictions_total", 9.0, pod=f"{SERVER}-{POOL}-0", model="queen", reason="room")
    turns = [(100.0 * number, number % 3) for number in range(180)]
    rushes = [(3600.0 * hour + 50, 3) for hour in range(5) for _ in range(1000)]
    called = sorted(turns + rushes)
    models = trace(dict.fromkeys(names, (3 * GB, 15.0)), 1, 1.0).models
    mixed = Trace(models, array("d", (at for at, _ in called)), array("l", (which for _, which in called)))
    subject, advice = advice_for(found, made, mixed)
    assert advice.kind == "pin queen"
    assert [each.pinned for each in after(found, subject, advice.change).stacks[0].platform.models] == [
        False, False, False, True
    ]  # fmt: skip


def test_models_that_are_kept_while_others_are_refused_want_other_limits(tmp_path: Path) -> None:
    found = definition(tmp_path, idleSeconds=600)
    made = pressed(SMALL)
    busy(made, "no-room", 300.0)
    quick = trace(dict.fromkeys(SMALL, (3 * GB, 1.0)), 25, 30.0)
    subject, advice = advice_for(found, made, quick)
    assert advice.kind == "other limits"
    assert advice.now
    assert advice.then
    assert advice.now.refused > advice.then.refused == 0
    assert after(found, subject, advice.change).stacks[0].platform.servers[0].pools[0].replicas is None


def test_more_replicas_are_advised_if_no_slice_is_larger(tmp_path: Path) -> None:
    names = ("ant", "bee", "cat", "dog")
    found = definition(tmp_path, dict.fromkeys(names, "30G"), "7g.80gb", [{"7g.80gb": 1}] * 4)
    made = pressed(names)
    subject, advice = advice_for(found, made, trace(dict.fromkeys(names, (30 * GB, 10.0)), 25, 30.0))
    assert advice.kind == "more replicas"
    (pool,) = after(found, subject, advice.change).stacks[0].platform.servers[0].pools
    assert pool.replicas in (2, 3)


def from_a_slow_volume(evicted: float = 99.0) -> Made:
    """Every model is loaded again and again, at 100 MB/s."""
    made = Made()
    calls(made, dict.fromkeys(SMALL, 200.0), late=500.0, waited=15000.0)
    for name, size in SIZES.items():
        loads(made, name, 100.0, 2 + size / 1e8, size, evicted)
    return made


def test_models_that_come_from_a_slow_volume_again_and_again_are_to_be_staged(tmp_path: Path) -> None:
    found = definition(tmp_path, OF_SIZES)
    subject, advice = advice_for(found, from_a_slow_volume(), SLOW)
    assert advice.kind == "files near the GPU"
    assert advice.now
    assert advice.then
    assert advice.then.lost_seconds < 0.5 * advice.now.lost_seconds
    assert "Files are read at 100 MB/s, which is 94% of the load time." in advice.why
    assert "Not simulated: each model" in advice.remark
    (pool,) = after(found, subject, advice.change).stacks[0].platform.servers[0].pools
    assert isinstance(pool.loading, OnDemand)
    assert pool.loading.staging
    assert byte_count(pool.loading.staging.size) * 15 // 16 == pytest.approx(sum(SIZES.values()), rel=1e-3)
    text = "\n".join(lines_of(found, found.stacks[0], Recorded(from_a_slow_volume().samples(), SLOW)))
    assert "kind: disk" in text
    assert "tidegate check refuses" not in text


@pytest.mark.parametrize("reason", ["loading", "queued"])
def test_busy_calls_with_a_slow_volume_need_near_files_and_no_longer_wait(tmp_path: Path, reason: str) -> None:
    found = definition(tmp_path, OF_SIZES)
    made = from_a_slow_volume()
    busy(made, reason, 300.0)
    assert advice_for(found, made, SLOW)[1].kind == "files near the GPU"


def test_a_faster_volume_is_not_advised_if_callers_lack_memory(tmp_path: Path) -> None:
    found = definition(tmp_path, OF_SIZES, idleSeconds=600)
    made = from_a_slow_volume()
    busy(made, "no-room", 300.0)
    assert advice_for(found, made, SLOW)[1].kind == "a larger slice"


def test_files_that_are_near_already_or_read_once_are_not_to_be_staged(tmp_path: Path) -> None:
    staged = definition(tmp_path, OF_SIZES, staging={"kind": "disk", "size": "20G"})
    assert advice_for(staged, from_a_slow_volume(), SLOW)[1].kind == "a larger slice"
    assert advice_for(definition(tmp_path, OF_SIZES), from_a_slow_volume(evicted=0.0), SLOW)[1].kind == "nothing"
    local = tree(OF_SIZES)
    local["datasets"] = [{"name": "models", "kind": "hostPath", "path": "/models"}]
    local["environments"][0]["local"] = True
    found = read_definition(write(tmp_path, local))
    assert advice_for(found, from_a_slow_volume(), SLOW)[1].kind == "a larger slice"


def test_calls_that_queue_want_more_replicas(tmp_path: Path) -> None:
    found = definition(tmp_path)
    made = Made()
    calls(made, dict.fromkeys(SMALL, 1000.0))
    work(made, "ant", queued=900.0, computed=300.0)
    subject, advice = advice_for(found, made)
    assert advice.kind == "more replicas"
    (pool,) = after(found, subject, advice.change).stacks[0].platform.servers[0].pools
    assert pool.replicas == 2


def test_calls_that_compute_for_longer_than_they_queue_are_not_short_of_it(tmp_path: Path) -> None:
    made = Made()
    calls(made, dict.fromkeys(SMALL, 1000.0))
    work(made, "ant", queued=250.0, computed=300.0)
    assert advice_for(definition(tmp_path), made)[1].kind == "nothing"


def test_busy_calls_while_their_model_loads_should_wait_longer(tmp_path: Path) -> None:
    found = definition(tmp_path)
    made = Made()
    calls(made, dict.fromkeys(SMALL, 20.0), late=5.0, waited=90.0)
    for name in SMALL:
        loads(made, name, 1.0, 26.0, 3e9)
    busy(made, "loading", 40.0)
    subject, advice = advice_for(found, made, trace(dict.fromkeys(("ant", "bee"), (3 * GB, 26.0)), 20, 30.0))
    assert advice.kind == "other limits"
    assert advice.change == subject.change(loading={"waitSeconds": 52})
    assert advice.now
    assert advice.then
    assert advice.now.refused > advice.then.refused == 0


def test_nothing_is_advised_without_a_problem(tmp_path: Path) -> None:
    found = definition(tmp_path)
    made = Made()
    calls(made, dict.fromkeys(SMALL, 1000.0), late=5.0, waited=50.0)
    work(made, "ant", queued=1.0, computed=300.0)
    assert advice_for(found, made)[1] == Advice("nothing", "99.9% of the calls found their model resident.")


@pytest.mark.parametrize(("computed", "kind"), [(300.0, "fewer replicas"), (7000.0, "nothing"), (0.0, "nothing")])
def test_slices_that_nothing_needs_are_to_be_given_back(tmp_path: Path, computed: float, kind: str) -> None:
    """But not those that compute, or of which that is unknown."""
    given, few = tree(dict.fromkeys(SMALL, "1G")), trace(dict.fromkeys(SMALL, (GB, 10.0)), 25, 30.0)
    given["servers"][0]["pools"][0]["replicas"] = 3
    given["dataPlanes"].append({**given["dataPlanes"][0], "name": "other", "context": "other"})
    found, made = read_definition(write(tmp_path, given)), Made()
    calls(made, dict.fromkeys(SMALL, 1000.0), late=5.0, waited=50.0)
    work(made, "ant", queued=1.0, computed=computed)
    subject, advice = advice_for(found, made, few)
    assert (advice.kind, advice.change) == (kind, {} if kind == "nothing" else subject.change(replicas=2))
    assert kind == "nothing" or "It frees 1 × MIG 1g.10gb (mixed), 730 device hours a month." in advice.remark
    text = "\n".join(lines_of(found, found.stacks[0], Recorded(made.samples(), few)))
    assert (f"First run `tidegate advise {found.file}` for each." in text) == (kind == "fewer replicas")


def test_nothing_is_advised_without_measurements(tmp_path: Path) -> None:
    found = definition(tmp_path)
    assert advice_for(found, Made())[1].why == "Prometheus has none of its pods in this time."


def test_the_lines_have_figures_place_change_and_simulated_effect(tmp_path: Path) -> None:
    found = definition(tmp_path)
    text = "\n".join(lines_of(found, found.stacks[0], Recorded(pressed(SMALL).samples(), TURNS)))
    for part in (
        f"{SERVER}/{POOL}  1 replica on MIG 1g.10gb (mixed), 1,000 calls",
        "memory   short  50.0% of calls found their model resident, 495 evictions for others",
        "advice   a larger slice:",
        "inference.yaml:",
        "(environment dev)",
        "profile: 2g.20gb",
        "(the same calls, simulated)",
        "Never advised: proxy.rateLimit",
    ):
        assert part in text, text


@given(
    st.floats(1e6, 1e9),
    st.floats(0.1, 100),
    st.lists(st.floats(1e7, 1e10), min_size=3, max_size=20, unique=True).filter(lambda each: max(each) > 2 * min(each)),
)
def test_a_straight_line_through_loads_gives_back_the_rate_that_made_them(
    rate: float, start: float, sizes: list[float]
) -> None:
    found = reading([(size, start + size / rate, 1.0) for size in sizes])
    mean = sum(sizes) / len(sizes) / rate
    if mean / (mean + start) > 1e-3:  # otherwise the start dominates it
        assert found
        assert found.bytes_per_second == pytest.approx(rate, rel=1e-3)
        assert found.share == pytest.approx(mean / (mean + start), rel=1e-3)
