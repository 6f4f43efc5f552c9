import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.load import parse
from stacks.overlays import Layers
from stacks.stack import Stack
from stacks.validate import PLATFORM_KEYS
from tests.stacks.definition.examples import FILE, dumped, edited_at, valid

Path = tuple[str | int, ...]

# ---- the six rules ----


def merged(under: Any, over: Any) -> Any:
    document = parse(json.dumps({"under": under, "over": over}), FILE)
    parts = document.root.parts
    return Layers(document).merged(parts["under"], parts["over"]).value


MERGES: dict[str, tuple[Any, Any, Any]] = {
    "1 mappings merge key by key": (
        {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 4, "e": 5}}, {"a": 1, "b": {"c": 2, "d": 4, "e": 5}},
    ),
    "2 items of the same name merge where they are": (
        [{"name": "x", "a": 1}, {"name": "y", "a": 2}],
        [{"name": "y", "b": 3}],
        [{"name": "x", "a": 1}, {"name": "y", "a": 2, "b": 3}],
    ),
    "2 new items come last": (
        [{"name": "x"}], [{"name": "z"}, {"name": "x", "a": 1}], [{"name": "x", "a": 1}, {"name": "z"}],
    ),
    "2 items merge at every depth": (
        {"s": [{"name": "x", "p": [{"name": "q", "a": 1, "b": 1}]}]},
        {"s": [{"name": "x", "p": [{"name": "q", "a": 2}]}]},
        {"s": [{"name": "x", "p": [{"name": "q", "a": 2, "b": 1}]}]},
    ),
    "3 numbers are replaced": ({"a": 1}, {"a": 2}, {"a": 2}),
    "3 lists without names are replaced": ({"a": [1, 2, 3]}, {"a": [4]}, {"a": [4]}),
    "3 a list of which one item has no name is replaced": (
        [{"name": "x"}, {"other": 1}], [{"name": "x", "a": 1}], [{"name": "x", "a": 1}],
    ),
    "3 an empty list replaces": ([{"name": "x"}], [], []),
    "3 an empty list is filled": ([], [{"name": "x"}], [{"name": "x"}]),
    "3 a text replaces a mapping": ({"a": {"b": 1}}, {"a": "c"}, {"a": "c"}),
    "4 null takes a key away": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    "4 null takes a whole list away": ({"a": [{"name": "x"}]}, {"a": None}, {}),
    "4 null inside something new is nothing": ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    "5 an item is removed": ([{"name": "x"}, {"name": "y"}], [{"name": "x", "remove": True}], [{"name": "y"}]),
    "6 another kind replaces": (
        {"kind": "a", "x": 1, "y": 2}, {"kind": "b", "x": 3}, {"kind": "b", "x": 3},
    ),
    "6 another mode replaces": ({"mode": "a", "x": 1}, {"mode": "b"}, {"mode": "b"}),
    "6 the same kind merges": ({"kind": "a", "x": 1}, {"kind": "a", "y": 2}, {"kind": "a", "x": 1, "y": 2}),
    "6 another kind of a named item replaces it": (
        [{"name": "x", "kind": "a", "a": 1}], [{"name": "x", "kind": "b"}], [{"name": "x", "kind": "b"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", MERGES)
def test_a_rule_of_merging(rule: str) -> None:
    under, over, result = MERGES[rule]
    assert merged(under, over) == result


# ---- properties ----

NAMES = st.sampled_from(["x", "y", "z"])
KEYS = st.sampled_from(["a", "b", "c"])
SCALARS = st.integers(0, 9) | st.booleans() | st.sampled_from(["s", "t"])


def named(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    items = st.tuples(NAMES, st.dictionaries(KEYS, values, max_size=3))
    unique = st.lists(items, max_size=3, unique_by=lambda item: item[0])
    return unique.map(lambda found: [{"name": name, **rest} for name, rest in found])


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        leaves,
        lambda below: st.dictionaries(KEYS, below, max_size=3) | named(below) | st.lists(SCALARS, max_size=3),
        max_leaves=8,
    )
    keys = st.dictionaries(st.sampled_from(["a", "b", "list"]), values, max_size=3)
    kinds = st.sampled_from([{}, {"kind": "one"}, {"kind": "other"}])
    return st.builds(lambda kind, rest: {**kind, **rest}, kinds, keys)


PLAIN = trees(SCALARS)
OVERLAYS = trees(SCALARS | st.none())


@given(PLAIN)
def test_laying_nothing_or_a_tree_over_itself_changes_nothing(tree: dict[str, Any]) -> None:
    assert merged(tree, {}) == merged({}, tree) == merged(tree, tree) == tree


@given(PLAIN, OVERLAYS)
def test_merging_leaves_no_null_changes_neither_side_and_twice_is_once(
    tree: dict[str, Any], overlay: dict[str, Any]
) -> None:
    document = parse(json.dumps({"under": tree, "over": overlay}), FILE)
    before = copy.deepcopy(document.tree)
    result = Layers(document).merged(document.root.parts["under"], document.root.parts["over"]).value
    assert merged({}, result) == result == merged(result, overlay)
    assert document.tree == before


@given(PLAIN, OVERLAYS, OVERLAYS)
def test_every_leaf_of_a_merged_tree_has_the_line_of_its_value(
    common: dict[str, Any], environment: dict[str, Any], plane: dict[str, Any]
) -> None:
    layers = {"common": common, "environment": environment, "plane": plane}
    # One scalar a line, with the name of its layer.
    marked = {name: _marked(tree, name, iter(range(1_000))) for name, tree in layers.items()}
    text = dumped(marked)
    document = parse(text, FILE)
    laying, layered = Layers(document), None
    for name in layers:
        layered = laying.laid((name,), document.tree[name].keys(), layered)
    assert layered is not None
    assert layered.tree == merged(merged(merged({}, document.tree["common"]), document.tree["environment"]),
                                  document.tree["plane"])  # fmt: skip
    lines = text.splitlines()
    for path, leaf in leaves(layered.tree):
        assert layered.get(path) == leaf
        position = layered.value_position(path)
        assert position.file == FILE
        if path[-1] == "name":
            assert leaf in lines[position.line - 1]
        else:
            assert lines[position.line - 1][position.column - 1 :] == leaf, (path, text)
            assert layered.text(path) == leaf


def _marked(tree: Any, layer: str, numbers: Iterator[int]) -> Any:
    """Return the tree with a separate text for each scalar, which names its layer."""
    if isinstance(tree, dict):
        kept = {"name": tree["name"]} if "name" in tree else {}
        return kept | {key: _marked(value, layer, numbers) for key, value in tree.items() if key != "name"}
    if isinstance(tree, list):
        return [_marked(value, layer, numbers) for value in tree]
    return None if tree is None else f"{layer}-{next(numbers)}"


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        yield path, tree
    else:
        for key, below in items:
            yield from leaves(below, (*path, key))


# ---- in a definition ----


def stack(text: str, name: str) -> Stack:
    (found,) = (each for each in valid(text).stacks if each.name == name)
    return found


def test_an_environment_without_overlays_is_the_common_part() -> None:
    text = edited_at({"proxy/replicas": 2, "environments/prod/proxy": {"replicas": 3}})
    found = stack(text, "dev-lab")
    assert found.source.tree == {key: value for key, value in parse(text, FILE).tree.items() if key in PLATFORM_KEYS}
    assert found.platform.proxy.replicas == 2


def test_an_overlay_may_take_away_replace_and_add() -> None:
    new = {"name": "new", "server": "main", "pool": "warm"}
    edits = {
        "models/third": {"server": "main", "pool": "cold"},
        "environments/prod/models": [{"name": "third", "remove": True}, {"name": "churn", "footprint": None}, new],
        "environments/prod/datasets": [{"name": "models", "kind": "claim", "claimName": "c"}],
        "environments/prod/proxy": {"access": []},
    }
    text = edited_at(edits)
    prod, dev = stack(text, "prod-east").platform, stack(text, "dev-lab").platform
    assert [model.name for model in prod.models] == ["churn", "ocr", "new"]
    assert prod.models[0].footprint is None
    assert [dataset.kind for dataset in prod.datasets] == ["claim"]
    assert (len(prod.proxy.access), len(dev.proxy.access)) == (0, 1)
    assert [model.name for model in dev.models] == ["churn", "ocr", "third"]
