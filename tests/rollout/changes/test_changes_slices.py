from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.changes.restarts import notices, restarts
from rollout.changes.stack_change import stack_change
from rollout.render import render
from stacks.definition.money import Cost
from stacks.devices import taken
from stacks.validate import read_definition
from tests.counts import examples

from ..conftest import made

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = [ROOT / "stacks/inference.yaml", *sorted((ROOT / "tests/definitions").glob("*.yaml"))]


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_a_new_stack_has_the_devices_and_cost_of_its_definition(path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        change = stack_change(stack.name, None, render(stack, definition).objects)
        requested = [each for each in taken(stack) if each.count]
        assert sum(each.after for each in change.devices) == sum(each.count for each in requested)
        assert {each.kind for each in change.devices} == {str(each.device) for each in requested}
        assert change.costs
        assert (change.costs[0], str(change.costs[1])) == (Cost(), str(sum((each.cost for each in requested), Cost())))


_KEYS = st.sampled_from(
    ["template", "spec", "containers", "resources", "limits", "nvidia.com/gpu", "resourceClaims", "volumes"]
)
_JUNK = st.recursive(
    st.none() | st.integers(-1, 9) | st.sampled_from(["nvidia.com/gpu", "x", "2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@examples(60)
@given(spec=_JUNK, other=_JUNK)
def test_manual_damage_is_no_reason_to_fail(spec: Any, other: Any) -> None:
    before, after = ([made("StatefulSet", "w", spec=junk), made("ConfigMap", "x", data=junk)] for junk in (spec, other))
    restarts(before, after)
    notices(before, after)
