"""A values file edited by hand gives what the same edit of the definition gives; what holds anyway may be left out."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from charts import values_of
from charts.arguments import arguments, default_of, is_list, meant, tag
from components import EnvironmentArgs
from stacks.load import load
from stacks.model_keys import Model, tag_values
from stacks.resolve import resolve
from stacks.resolve.settings import ANNOTATION
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .broken_values import edited
from .rendering import ROOT, declared, object_differences, rendered

Values = dict[str, Any]


def brief(values: Values, kinds: tuple[Model, ...], *, nulls: bool, item: bool = False) -> Values:
    """The values, and in items of lists null, or nothing, where a default holds; elsewhere values.yaml would hold."""
    told_by = tag(kinds) if len(kinds) > 1 else ""
    owner = next(
        kind for kind in kinds if not told_by or values.get(told_by, meant(kinds)) in tag_values(kind, told_by)
    )
    found: Values = {}
    for argument in (argument for argument in arguments(owner) if argument.name in values):
        key, value, parts = argument.name, values[argument.name], argument.models
        required = argument.field.is_required() or key == told_by
        if item and not required and value in (default_of(argument), [], {}):
            found |= {key: None} if nulls else {}
        elif parts and is_list(argument.annotation):
            found[key] = [brief(one, parts, nulls=nulls, item=True) for one in value]
        else:
            found[key] = brief(value, parts, nulls=nulls, item=item) if parts else value
    return found


PLAIN = ("resources", "rateLimit", "bodyLimit", "concurrency", "timeouts", "logLevel", "nodeSelector", "tolerations")
XLARGE = {
    "name": "xlarge",
    "placement": {"kind": "mig", "profile": "7g.80gb", "product": "NVIDIA-A100-SXM4-80GB"},
    "replicas": 2,
    "resources": {"cpu": "16", "memory": "96Gi"},
    "loading": {"mode": "on-demand", "capacity": "72Gi"},
}
TRANSLATE = {"name": "translate", "footprint": "40Gi"}


def and_one(item: Tree) -> Callable[[list[Tree]], list[Tree]]:
    return lambda items: [*items, item]


def plain(proxy: Tree) -> Tree:
    return {key: value for key, value in proxy.items() if key not in PLAIN}


def reference() -> Tree:
    """The reference with a proxy unlike others, and GPUs enough for every edit."""
    tree = copy.deepcopy(load(ROOT / "stacks/inference.yaml").tree)
    tree["proxy"].update(concurrency=7, bodyLimit="1Mi", logLevel="debug", timeouts={"drainSeconds": 5})
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "nodes": 50} for group in plane["gpus"]]
        plane["gpus"].append({**plane["gpus"][0], "mig": {"slices": {"7g.80gb": 1}}})
    for one in tree["environments"]:
        one.get("guardrails", tree["guardrails"])["gpuSlices"] = 100
    return tree


def resolved(tree: Tree) -> EnvironmentArgs:
    definition = read_tree(tree)
    return resolve(next(stack for stack in definition.stacks if stack.name == "prod-east"), definition.lock)


@pytest.mark.parametrize(
    ("of_definition", "of_values"),
    [
        (
            {
                "servers[ondemand].pools": and_one(XLARGE),
                "models": and_one({**TRANSLATE, "server": "ondemand", "pool": "xlarge"}),
            },
            {"servers[ondemand].pools": and_one({**XLARGE, "models": [TRANSLATE]})},
        ),
        ({"proxy": plain, "environments[prod].proxy": plain}, {f"proxy.{key}": None for key in PLAIN}),
    ],
    ids=["add a pool with a model", "let everything be what it is by default"],
)
def test_an_edit_of_the_values_gives_what_the_same_edit_of_the_definition_gives(
    of_definition: Values, of_values: Values
) -> None:
    before = resolved(reference())
    wanted = declared(resolved(edited(of_definition, reference())))
    assert object_differences(declared(before), wanted), "the edit changes nothing"
    differing = object_differences(wanted, rendered(edited(of_values, values_of(before))))
    assert [each for each in differing if ANNOTATION not in each] == [], "it tells what the definition was"


@settings(parent=examples(15), suppress_health_check=list(HealthCheck))
@given(definition_trees(), st.booleans())
def test_items_need_not_say_what_holds_anyway(tree: Tree, nulls: bool) -> None:
    definition = read_tree(tree)
    args = resolve(definition.stacks[0], definition.lock)
    short = brief(values_of(args), (EnvironmentArgs,), nulls=nulls)
    assert object_differences(declared(args), rendered(short)) == []
