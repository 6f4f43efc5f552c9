from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stacks.definition import Platform
from stacks.load import frozen, parse
from stacks.problems import Position
from stacks.schema_errors import problems_from
from tests.cases import GONE
from tests.counts import examples
from tests.stacks.definition.examples import assert_refused, edited_at, only_problem

COLD = "servers/main/pools/cold"
PLACE = "servers[main].pools[cold]"


def message_of(edits: dict[str, Any]) -> str:
    """Return the message for an edit. "RAW " in its texts precedes a value without quotes."""
    return str(only_problem(edited_at(edits).replace("RAW ", "")))


def test_an_unknown_key_lists_the_keys_and_without_a_near_one_suggests_none() -> None:
    text = message_of({f"{COLD}/zzz": 3})
    assert f'{PLACE}: unknown key "zzz"' in text
    assert "Keys here: name, formerly, loading, placement, replicas," in text
    assert "Did you mean" not in text


def test_a_missing_key_is_reported_at_its_parent() -> None:
    assert_refused(edited_at({f"{COLD}/loading": GONE}), "- »name: cold", '"loading" is missing')
    text = message_of({f"{COLD}/autoscaling": {"kind": "cpu", "max": 2}})
    assert text.endswith(f'{PLACE}.autoscaling: "min" is missing\n    "min": Fewest replicas.')


@pytest.mark.parametrize(
    ("written", "do"),
    [("RAW 26.10", 'quote it: "26.10"'), ("RAW 0x10", 'quote it: "0x10"'), (1.5e300, "at most 63 letters")],
)
def test_a_number_that_is_meant_as_text_is_shown_as_it_is_written(written: Any, do: str) -> None:
    text = message_of({f"{COLD}/nodeSelector": {"a": written}})
    assert "expected text, got the number" in text
    assert do in text


KEYS = (
    "images servers pools loading mode kind name proxy exposure access models alias versions network callers cidr "
    "labels placement profile mig repository url [key]"
)
keys = st.sampled_from(KEYS.split())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | keys | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(keys | st.text(max_size=5), below, max_size=4),
    max_leaves=25,
)


@examples(500)
@given(st.dictionaries(keys, values, max_size=6))
def test_any_error_of_any_tree_becomes_problems(tree: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Platform.model_validate(frozen({**tree, "tag": 1}))
    problems = problems_from(caught.value, parse("tag: x\n", "f.yaml"), Platform)
    assert 1 <= len(problems) <= caught.value.error_count()
    for problem in problems:
        assert str(problem)
        assert isinstance(problem.where, Position)
