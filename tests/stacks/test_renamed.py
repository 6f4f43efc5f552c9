import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from rollout.render import render
from stacks.clients import environments
from stacks.command import CommandError, chosen_stacks
from stacks.definition.base import Renamable
from stacks.resolve.settings import ANNOTATION
from stacks.stack import Definition, Stack
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree
from tests.strategies.renaming import NOW, renamed

EVERYTHING = yaml.safe_load(Path("tests/definitions/everything.yaml").read_text("utf-8"))


def rendered(stack: Stack, definition: Definition) -> dict[tuple[str, str], Any]:
    """Return a stack's objects without the places that contain current names: the definition's annotation, the routing
    table, TLS files, and the autoscalers' queries."""
    objects = {(item["kind"], item["metadata"]["name"]): item for item in render(stack, definition).objects}
    for (kind, name), item in objects.items():
        item["metadata"].get("annotations", {}).pop(ANNOTATION, None)
        for table in ("routing.json", "access.json"):
            item.get("data", {}).pop(table, None)
            item.get("data", {}).pop(f"{table}.sha256", None)
        for trigger in item["spec"]["triggers"] if kind == "ScaledObject" else ():
            trigger["metadata"]["query"] = re.sub(
                rf'(server|pool)="([^"]+?)(?:{NOW})?"', r'\1="\2"', trigger["metadata"]["query"]
            )
        if (kind, name) == ("Deployment", "inference-proxy"):
            pods = item["spec"]["template"]["spec"]
            pods["volumes"] = [volume for volume in pods["volumes"] if volume["name"] != "upstream-ca"]
    return objects


@settings(parent=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_a_rename_in_any_definition_re_creates_no_object(tree: Tree) -> None:
    before, after = read_tree(tree), read_tree(renamed(tree))
    for old, new in zip(before.stacks, after.stacks, strict=True):
        assert new.name == f"{old.environment.name}{NOW}-{old.data_plane.name}{NOW}"
        assert [each.name for each in new.former()][-1] == old.name
        assert new.data_plane.context_name == old.data_plane.context_name
        assert rendered(new, after) == rendered(old, before)


def test_tables_and_clients_have_the_names_of_now() -> None:
    definition = read_tree(renamed(EVERYTHING))
    (stack,) = definition.stacks
    (table,) = (
        json.loads(item["data"]["routing.json"])
        for item in render(stack, definition).objects
        if "routing.json" in item.get("data", {})
    )
    facts = environments(definition).environments[0]
    names = [table["environment"], facts.name, facts.planes[0].name]
    for server in (*table["servers"], *facts.planes[0].model_dump()["servers"]):
        names += [server["name"], *(pool["name"] for pool in server["pools"])]
    for model in (*table["models"], *facts.planes[0].model_dump()["models"]):
        names += [model["server"], model["pool"]]
    assert {name.endswith(NOW) for name in names} == {True}
    assert (facts.formerly, facts.planes[0].formerly) == (("prod",), ("all",))
    assert environments(read_tree(EVERYTHING)).environments[0].formerly is None


def test_a_former_name_of_a_stack_is_an_error_with_the_new_name() -> None:
    definition = read_tree(renamed(EVERYTHING))
    with pytest.raises(CommandError, match="Stack prod-all has the name prod-now-all-now now: set --stack"):
        chosen_stacks(definition, "prod-all")
    with pytest.raises(CommandError, match="There is no stack prod-none"):
        chosen_stacks(definition, "prod-none")


def test_of_several_former_names_the_oldest_is_the_one_of_the_objects() -> None:
    past: list[Renamable] = [Renamable(name="c", formerly=("a", "b")), Renamable(name="c")]
    assert [item.made_as for item in past] == ["a", "c"]
