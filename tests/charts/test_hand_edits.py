from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from charts import values_of
from charts.arguments import arguments, default_of, is_list, meant
from components import EnvironmentArgs
from stacks.model_keys import models_in, tag_of, tag_values
from stacks.resolve import resolve
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .rendering import declared, object_differences, rendered

Values = dict[str, Any]


def brief(values: Values, kind: Any, *, nulls: bool, item: bool = False) -> Values:
    """The values without defaults (or with null) in items of lists. In other places values.yaml would replace them."""
    kinds, tag = models_in(kind), tag_of(kind) or ""
    owner = next(kind for kind in kinds if not tag or values.get(tag, meant(kinds)) in tag_values(kind, tag))
    found: Values = {}
    for argument in (argument for argument in arguments(owner) if argument.name in values):
        key, value, below = argument.name, values[argument.name], argument.annotation
        required = argument.field.is_required() or key == tag
        if item and not required and value in (default_of(argument), [], {}):
            found |= {key: None} if nulls else {}
        elif argument.models and is_list(below):
            found[key] = [brief(one, below, nulls=nulls, item=True) for one in value]
        else:
            found[key] = brief(value, below, nulls=nulls, item=item) if argument.models else value
    return found


@settings(parent=examples(15), suppress_health_check=list(HealthCheck))
@given(definition_trees(), st.booleans())
def test_items_may_leave_out_defaults(tree: Tree, nulls: bool) -> None:
    definition = read_tree(tree)
    args = resolve(definition.stacks[0], definition.lock)
    short = brief(values_of(args), EnvironmentArgs, nulls=nulls)
    assert object_differences(declared(args), rendered(short)) == []
