from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from charts import values_of
from charts.folder import default_values
from charts.values_file import scalar, values_text
from stacks.load import parse
from stacks.resolve import resolve
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

MANY = settings(
    parent=examples(40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate],
)
TRICKY = ["", "y", "No", "on", "null", "~", "true", "1e3", "0x10", "012", "1_000", "2026-01-01", "1:30", ".5", "-"]
TRICKY += ["a: b", "a #b", "'", '"', "\\", "{{ .Values.x }}", "[a", "*x", "&x", "!x", "%x", "@x"]
TRICKY += ["a\nb", "\t", "é", "🦀", "\u2028"]

texts = st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"))
trees: st.SearchStrategy[Any] = st.recursive(
    texts | st.integers(-(2**53), 2**53) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def merged(below: Any, above: Any) -> Any:
    """The chart's values and a user's, merged as Helm does: mappings key by key, null removes, other values replace."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {key: merged(below.get(key), value) if key in below else value for key, value in above.items()}
    return {key: value for key, value in {**below, **both}.items() if above.get(key, 0) is not None}


@given(trees)
def test_both_dialects_of_yaml_read_the_same_values(tree: Any) -> None:
    text = values_text({"value": tree}, "A heading\nof two lines")
    assert yaml.safe_load(text) == {"value": tree}
    assert parse(text, "values.yaml").tree == {"value": tree}


@given(texts)
def test_a_text_on_one_line_is_read_as_it_is(text: str) -> None:
    assert yaml.safe_load(f"[{scalar(text)}]") == [text]
    assert len(scalar(text).splitlines()) == 1


@MANY
@given(definition_trees())
def test_nothing_of_the_charts_own_values_comes_back_in_the_environment_of_a_user(tree: Tree) -> None:
    definition = read_tree(tree)
    for stack in definition.stacks:
        values = values_of(resolve(stack, definition.lock))
        assert merged(default_values(), values) == values
