"""Nothing of a definition changes in silence: a change is refused, or a preview shows it, or nothing is different."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.changes.compare import compare
from rollout.render import render
from stacks.definition import DataPlane
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.problems import DefinitionError
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from stacks.validate import validate
from tests.counts import examples
from tests.strategies.definitions import definition_trees

Path_ = tuple[str | int, ...]
GONE = object()
EVERYTHING = yaml.safe_load(Path("tests/definitions/everything.yaml").read_text("utf-8"))


def read(tree: Any) -> Definition:
    return validate(parse(json.dumps(tree), "definition.yaml"), ImagesLock())


def changes_of(tree: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield a place in a tree and what may stand there instead; each key and item may also be gone."""
    if isinstance(tree, dict | list):
        for step, below in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield (*path, step), GONE
            yield from changes_of(below, (*path, step))
    elif isinstance(tree, bool):
        yield path, not tree
    elif isinstance(tree, int | float):
        yield from ((path, tree + step) for step in (1, -1))
    elif isinstance(tree, str):
        yield path, f"{tree}x"
        if number := re.search(r"[0-9]+", tree):
            yield path, f"{tree[: number.start()]}{int(number[0]) + 1}{tree[number.end() :]}"


def changed(tree: Any, path: Path_, value: Any) -> Any:
    new = copy.deepcopy(tree)
    at = new
    for step in path[:-1]:
        at = at[step]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return new


@cache
def places() -> list[tuple[Path_, Any]]:
    return [*changes_of(EVERYTHING)]


def meant(stack: Stack, definition: Definition) -> tuple[Any, ...]:
    """Return all that a stack resolves to, and what its data plane and its environment say besides.

    A model that names no pool is served by its server's only one, and names it here.
    """
    only = {server.name: server.pools[0].name for server in stack.platform.servers}
    models = tuple(
        model.model_copy(update={"pool": model.pool or only[model.server]}) for model in stack.platform.models
    )
    stack = replace(stack, platform=stack.platform.model_copy(update={"models": models}))
    plane = stack.data_plane.model_dump() | {"context": stack.data_plane.context or stack.data_plane.name}
    environment = stack.environment.model_dump() | {"namespace": stack.namespace}
    platform = stack.platform.model_dump(exclude={"servers"})
    return resolve(stack, definition.lock), plane, environment, platform


def test_the_annotation_has_every_key_of_a_data_plane_that_is_set() -> None:
    stack = read(EVERYTHING).stacks[0]
    assert {"context", "wave", "gpus"} <= DataPlane.model_fields.keys()
    (namespace,) = (item for item in render(stack, read(EVERYTHING)).objects if item["kind"] == "Namespace")
    assert '"wave"' in namespace["metadata"]["annotations"]["tidegate.dev/definition"]


@examples(400)
@given(st.data())
def test_no_leaf_of_any_definition_changes_in_silence(data: st.DataObject) -> None:
    tree, where = EVERYTHING, places()
    if data.draw(st.booleans()):
        tree = data.draw(definition_trees())
        where = [*changes_of(tree)]
    path, value = data.draw(st.sampled_from(where))
    before = read(tree)
    try:
        after = read(changed(tree, path, value))
    except DefinitionError:
        return
    old, new = ({stack.name: stack for stack in definition.stacks} for definition in (before, after))
    if old.keys() != new.keys():
        return  # a stack that comes or goes is shown as one
    for name in old:
        if meant(old[name], before) != meant(new[name], after):
            objects = (render(stack, read_) for stack, read_ in ((old[name], before), (new[name], after)))
            assert compare(*(each.objects for each in objects)), f"{path} → {value!r} changes {name} in silence"
