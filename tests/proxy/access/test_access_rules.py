"""Rules: what they grant, and what they leave unsaid."""

import asyncio
import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tidegate_contracts.routing import API_KEYS, DOMINO, AccessRule
from tidegate_proxy.access.identity import Principal
from tidegate_proxy.access.rules import MOST_RIGHTS, Globs, Rules, build_rules

from .tables import rule

globs = st.text("ab*?[]!-.\n", max_size=7)
names = st.text("ab-.\n]", max_size=7)


def principal(name: str = "alice", *groups: str) -> Principal:
    return Principal(name, frozenset(groups), "issuer")


@given(st.lists(globs, max_size=5), names)
@example(["a*a"], "a")
@example(["*a*a"], "a")
@example(["a*b*ab"], "ab")
@example(["**"], "")
@example(["["], "[")
def test_globs_match_as_fnmatch_has_them(several: list[str], name: str) -> None:
    assert bool(Globs(several).match(name)) == any(fnmatchcase(name, glob) for glob in several)


def test_a_rule_with_a_source_grants_nothing_to_those_of_the_same_name_whom_others_vouch_for() -> None:
    several = Rules(
        [
            rule(principals=("ci",), source=API_KEYS),
            rule(groups=("admins",), source="https://one.example", models=("m",)),
            rule(principals=("anybody",), models=("n",)),
        ]
    )
    sources = ("https://one.example", "https://two.example", API_KEYS, DOMINO)

    def granted(name: str, group: str, model: str) -> list[str]:
        callers = {source: Principal(name, frozenset({group}), source) for source in sources}
        return [source for source, caller in callers.items() if several.of(caller).allow("infer", "s", model)]

    assert granted("ci", "", "m") == [API_KEYS]
    assert granted("x", "admins", "m") == ["https://one.example"]
    assert granted("anybody", "", "n") == list(sources)


words = st.text("aAb*?", min_size=1, max_size=3)
rules = st.builds(
    AccessRule,
    name=st.just("r"),
    principals=st.lists(words, max_size=2).map(tuple),
    groups=st.lists(words, max_size=2).map(tuple),
    actions=st.sampled_from([("infer",), ("inspect",), ("infer", "inspect")]),
    servers=st.lists(words, max_size=2).map(tuple),
    models=st.lists(words, max_size=2).map(tuple),
)
plain = st.text("aAb", min_size=1, max_size=3)


@given(
    st.lists(rules, max_size=6), plain, st.sets(plain, max_size=2), plain, plain, st.sampled_from(["infer", "inspect"])
)
def test_rules_grant_what_one_of_them_says_and_nothing_else(
    several: list[AccessRule], name: str, groups: set[str], server: str, model: str, action: str
) -> None:
    def any_match(patterns: tuple[str, ...], values: set[str]) -> bool:
        return any(fnmatchcase(value, pattern) for pattern in patterns for value in values)

    expected = any(
        (any_match(each.principals, {name}) or any_match(each.groups, groups))
        and action in each.actions
        and any_match(each.servers, {server})
        and any_match(each.models, {model})
        for each in several
    )
    who = Principal(name, frozenset(groups), "issuer")
    compiled = Rules(several)
    assert compiled.of(who).allow(action, server, model) == expected  # type: ignore[arg-type]
    assert compiled.of(who).allow(action, server, model) == expected  # type: ignore[arg-type]


def test_those_whom_the_same_rules_name_share_their_rights_and_no_more_are_kept_than_bounded() -> None:
    compiled = Rules([rule(groups=("g*",))])
    assert compiled.of(principal("alice", "g1")) is compiled.of(principal("bob", "g2"))
    for n in range(MOST_RIGHTS + 10):
        compiled.of(principal(f"p{n}"))
    assert len(compiled._of) <= MOST_RIGHTS


@pytest.mark.parametrize("shape", ["model-{}", "model-{}*", "*-model-{}", "a*{}*b", "model-{}-?"])
def test_a_thousand_rules_and_ten_thousand_models_stay_fast(shape: str) -> None:
    several = [rule(name=f"r{n}", groups=(f"group-{n % 50}",), models=(shape.format(n),)) for n in range(1000)]
    begun = time.perf_counter()
    compiled = Rules(several)
    rights = compiled.of(principal("alice", *(f"group-{n}" for n in range(50))))
    granted = sum(rights.allow("infer", "main", f"model-{n}") for n in range(10_000))
    assert granted in (1000, 10_000, 0) or shape == "model-{}*"
    # Some 0.01 to 0.1 ms each where all rules apply to one caller; a decision is then remembered.
    assert time.perf_counter() - begun < 10


@pytest.mark.anyio
async def test_many_rules_are_read_while_other_work_goes_on() -> None:
    several = [rule(name=f"r{n}", principals=(f"p{n}",), models=(f"*-{n}-?",)) for n in range(1000)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    built = await build_rules(several)
    working.cancel()
    assert turns >= 19
    assert built.of(principal("p7")).allow("infer", "main", "a-7-b")
    assert not built.of(principal("p7")).allow("infer", "main", "a-8-b")
