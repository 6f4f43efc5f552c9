import copy
import importlib.metadata
import random
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.policies import registry
from tidegate_eviction.policies.policy import (
    MOST_REASON,
    Candidate,
    Policy,
    PolicyError,
    SharedPart,
    freed_by,
    guarded,
)
from tidegate_eviction.policies.registry import worth

from stacks.definition.policies import SHIPPED

from . import hostile

NOW = 1000.0


def candidate(
    name: str,
    size: int = 10,
    idle: float = 100.0,
    load: float = 1.0,
    gap: float = 0.0,
    shared: tuple[SharedPart, ...] = (),
) -> Candidate:
    return Candidate(name, size, NOW - idle, 0.0, load, gap, shared)


def chosen(policy: str, candidates: Sequence[Candidate], needed: int) -> list[str]:
    return [victim.name for victim in registry.find(policy).choose(candidates, needed, NOW)]


TIMES = st.floats(0, 1e4)
A_CANDIDATE = st.builds(candidate, st.uuids().map(str), st.integers(1, 50), TIMES, st.floats(0, 1e3), TIMES)
CANDIDATES = st.lists(A_CANDIDATE, min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("stays", "goes"),
    [
        (candidate("costly", load=60), candidate("cheap", load=1)),
        (candidate("small", size=1), candidate("large", size=50)),
        (candidate("often", idle=10, gap=10), candidate("seldom", idle=10, gap=1000)),
        (candidate("lately", idle=10, gap=5), candidate("long ago", idle=10_000, gap=5)),
    ],
)
def test_cost_aware_keeps_expensive_small_and_often_used_models(stays: Candidate, goes: Candidate) -> None:
    assert chosen("cost-aware", [stays, goes], 1) == [goes.name]


def test_worth_is_seconds_of_loading_per_byte_and_second() -> None:
    assert worth(candidate("a", size=4, load=60, gap=50, idle=20), NOW) == pytest.approx(60 / 4 / 50)
    assert worth(candidate("a", size=4, load=60, gap=50, idle=80), NOW) == pytest.approx(60 / 4 / 80)
    shared = (SharedPart("part", 30, 3),)
    assert worth(candidate("a", size=10, load=40, idle=2, shared=shared), NOW) == pytest.approx(40 / 20 / 2)


@pytest.mark.parametrize("policy", ["break-even", "lru-idle", "cost-aware"])
@given(candidates=CANDIDATES, share=st.floats(0, 1))
def test_enough_models_are_evicted_none_twice_and_none_in_vain(
    policy: str, candidates: list[Candidate], share: float
) -> None:
    needed = max(1, int(share * freed_by(candidates)))
    victims = list(registry.find(policy).choose(candidates, needed, NOW))
    assert freed_by(victims) >= needed
    assert len({victim.name for victim in victims}) == len(victims)
    for victim in victims:
        assert freed_by([other for other in victims if other is not victim]) < needed


@pytest.mark.parametrize("policy", ["break-even", "lru-idle", "cost-aware"])
@given(candidates=CANDIDATES, share=st.floats(0, 1), order=st.randoms())
def test_the_order_of_candidates_does_not_matter(
    policy: str, candidates: list[Candidate], share: float, order: random.Random
) -> None:
    needed = max(1, int(share * freed_by(candidates)))
    before = chosen(policy, candidates, needed)
    order.shuffle(candidates)
    assert chosen(policy, candidates, needed) == before


def test_a_shared_part_is_freed_with_its_last_ensemble() -> None:
    part = SharedPart("part", 100, 2)
    pair = [candidate("a", size=1, idle=2, shared=(part,)), candidate("b", size=1, idle=1, shared=(part,))]
    assert freed_by(pair[:1]) == 1
    assert freed_by(pair) == 102
    assert chosen("lru-idle", pair, 2) == ["a", "b"]
    assert chosen("lru-idle", [*pair, candidate("c", size=5, idle=0.5)], 50) == ["a", "b"]
    part.users = 3
    assert freed_by(pair) == 2, "another model needs it, too"


def test_the_policies_of_the_definition_are_built_in() -> None:
    assert tuple(registry.BUILT_IN) == SHIPPED
    assert all(policy.name == name for name, policy in registry.BUILT_IN.items())


CUSTOM = Policy("mine", "The newest goes first.", lambda candidates, _needed, _now: candidates)
WRONG = Policy("another name", "", CUSTOM.choose)


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Pretend that packages have entry points, each with its name and its object in this module."""

    def bring(*found: tuple[str, str]) -> None:
        named = [importlib.metadata.EntryPoint(name, f"{__name__}:{value}", registry.GROUP) for name, value in found]
        points = importlib.metadata.EntryPoints(named)
        monkeypatch.setattr(importlib.metadata, "entry_points", points.select)

    return bring


def test_policies_come_from_other_packages_under_names_that_are_not_built_in(install: Install) -> None:
    install(("mine", "CUSTOM"), ("lru-idle", "CUSTOM"))
    assert (registry.find("mine").name, registry.find("mine").sentence) == (CUSTOM.name, CUSTOM.sentence)
    assert chosen("mine", [candidate("a"), candidate("b")], 1) == ["a", "b"]
    with pytest.raises(ValueError, match=r'policy "lru-idle" is built in\. Rename the entry point .*:CUSTOM'):
        registry.find("lru-idle")
    assert registry.find("cost-aware") is registry.BUILT_IN["cost-aware"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ((), 'there is no policy "mine". The built-in policies are break-even'),
        ((("mine", "CUSTOM"), ("mine", "WRONG")), '2 packages have a policy "mine"'),
        ((("mine", "NOTHING"),), "cannot be imported"),
        ((("mine", "WRONG"),), "is not a Policy with this name"),
        ((("mine", "NOW"),), "is not a Policy with this name"),
        ((("mine", "candidate"),), "is not a Policy with this name"),
    ],
)
def test_a_policy_that_cannot_be_used_is_reported_in_one_sentence(
    install: Install, found: tuple[tuple[str, str], ...], reason: str
) -> None:
    install(*found)
    with pytest.raises(ValueError, match=re.escape(reason)):
        registry.find("mine")


@pytest.mark.parametrize("how", [*hostile.WELL, *hostile.BADLY])
@given(candidates=CANDIDATES, share=st.floats(0, 1))
def test_a_custom_policy_alters_nothing_and_chooses_among_its_candidates(
    how: str, candidates: list[Candidate], share: float
) -> None:
    candidates[0].name = f"{how}.{candidates[0].name}"
    before, needed = copy.deepcopy(candidates), max(1, int(share * freed_by(candidates)))
    policy = guarded(hostile.policy)
    if how in hostile.BADLY:
        with pytest.raises(PolicyError) as caught:
            policy.choose(candidates, needed, NOW)
        assert 0 < len(str(caught.value)) <= MOST_REASON
    else:
        assert {id(each) for each in policy.choose(candidates, needed, NOW)} <= set(map(id, candidates))
    assert candidates == before
