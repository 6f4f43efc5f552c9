import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from policies.guardrails import BY_NAME, RULES
from policies.guardrails.checking import judged
from tests.components.test_environment import declared
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from . import stacks
from .dangers import Danger
from .dangers_around_pods import AROUND_PODS
from .dangers_in_pods import IN_PODS
from .stacks import Objects, everything, prod

DANGERS = {**IN_PODS, **AROUND_PODS}
ALL = [(rule, danger) for rule, dangers in DANGERS.items() for danger in dangers]


def of_production(objects: Objects) -> Objects:
    stacks.settings(objects, kind="production", severities=None, waivers=None)
    return objects


def changed(objects: str, danger: Danger, place: int) -> Objects:
    _, places, change = danger
    made: Objects = json.loads(objects)
    change(places(made)[place])
    return made


def breaches_of(objects: Objects, rule: str) -> set[tuple[str, str]]:
    breaches = (breach for environment in judged(objects) for breach in BY_NAME[rule](environment))
    return {(str(breach.object["metadata"]["name"]), breach.what) for breach in breaches}


@pytest.mark.parametrize(("rule", "danger"), ALL, ids=[f"{rule}: {danger[0]}" for rule, danger in ALL])
@pytest.mark.parametrize("base", [prod, everything])
def test_a_dangerous_change_is_a_mandatory_finding(base: Callable[[], Objects], rule: str, danger: Danger) -> None:
    assert BY_NAME[rule].severity("production") == "mandatory"
    sound = of_production(base())
    before = breaches_of(sound, rule)
    count = len(danger[1](sound))
    if base is everything:
        assert count
    for place in {0, count - 1} if count else ():
        assert breaches_of(changed(json.dumps(sound), danger, place), rule) - before


def test_every_guardrail_of_security_has_some() -> None:
    # These are about availability.
    of_another_kind = {"every-container-has-probes", "every-workload-has-a-budget"}
    assert {*DANGERS} == {rule.name for rule in RULES} - of_another_kind


# A failure names the missed change. Shrinking the definition would take minutes and add nothing.
@settings(
    parent=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(definition_trees(), st.data())
def test_every_danger_is_found_in_any_valid_environment(tree: Tree, data: st.DataObject) -> None:
    definition = read_tree(tree, pinned=True)
    sound = of_production(declared(definition, data.draw(st.sampled_from(definition.stacks))))
    dumped, random = json.dumps(sound), data.draw(st.randoms(use_true_random=False))
    missed = []
    for rule, danger in ALL:
        if count := len(danger[1](sound)):
            place = random.randrange(count)
            after = changed(dumped, danger, place)
            touched = {item["metadata"]["name"] for item in after if item not in sound}
            # A definition's own breaches, such as a load balancer for every address, are found before and after.
            known = {each for each in breaches_of(sound, rule) if each[0] not in touched}
            if after != sound and not breaches_of(after, rule) - known:
                missed.append((rule, danger[0], place))
    assert missed == []
