"""Of a values file that people edit, what holds anyway may be left out, or be null."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from charts import values_of
from charts.arguments import arguments, chosen, is_list, tag
from components import EnvironmentArgs
from stacks.resolve import resolve
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .rendering import declared, object_differences, rendered

Values = dict[str, Any]


def brief(values: Values, kinds: tuple[type, ...], *, nulls: bool, item: bool = False) -> Values:
    """The values, and in items of lists null, or nothing, where a default holds; elsewhere values.yaml would hold."""
    owner = chosen(kinds, values)
    told_by = tag(kinds) if len(kinds) > 1 else None
    found: Values = {}
    for argument in (argument for argument in arguments(owner) if argument.key in values):
        value = values[argument.key]
        if item and not argument.required and argument.key != told_by and value in (argument.default, [], {}):
            found |= {argument.key: None} if nulls else {}
        elif argument.classes and is_list(argument.kind):
            found[argument.key] = [brief(one, argument.classes, nulls=nulls, item=True) for one in value]
        elif argument.classes:
            found[argument.key] = brief(value, argument.classes, nulls=nulls, item=item)
        else:
            found[argument.key] = value
    return found


@settings(parent=examples(15), suppress_health_check=list(HealthCheck))
@given(definition_trees(), st.booleans())
def test_items_need_not_say_what_holds_anyway(tree: Tree, nulls: bool) -> None:
    definition = read_tree(tree)
    args = resolve(definition.stacks[0], definition.lock)
    short = brief(values_of(args), (EnvironmentArgs,), nulls=nulls)
    assert object_differences(declared(args), rendered(short)) == []
