import copy
import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.changes.compare import KEPT
from rollout.changes.page import page
from rollout.changes.stack_change import StackChange, stack_change, verdict
from rollout.preview import terminal_sections
from rollout.render import render
from stacks.definition.money import Cost
from stacks.resolve import settings
from tests.strategies.definitions import read_tree

PRICE = {"perHour": 7.0, "source": "A test.", "asOf": "2026-11-01"}


def replicas_of_small(count: int, price: Any) -> Any:
    tree = yaml.safe_load(Path("stacks/inference.yaml").read_text("utf-8"))
    tree["servers"][1]["pools"][0]["replicas"] = count
    tree["guardrails"]["gpuSlices"] = 4
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "price": price} for group in plane["gpus"]]
    definition = read_tree(tree)
    stack = next(stack for stack in definition.stacks if stack.name == "dev-lab")
    return render(stack, definition).objects


def change(price: Any) -> StackChange:
    before, after = replicas_of_small(1, price), replicas_of_small(2, price)
    return stack_change("dev-lab", before, after)


@pytest.mark.parametrize(
    ("price", "costs", "headline"),
    [
        (PRICE, "$4,429 → $5,110 (+$681)", " · a month $4,429 → $5,110 (+$681)"),
        (None, "2,190 device hours → 2,920 device hours (+730 device hours)", ""),
    ],
    ids=["priced", "not priced"],
)
def test_a_stack_shows_its_cost_before_and_after(price: Any, costs: str, headline: str) -> None:
    one = change(price)
    text = terminal_sections([one]).plain
    assert f"  dev-lab: {costs}\n" in text
    assert "  dev-lab MIG 1g.10gb (mixed): 1 → 2\n" in text
    assert verdict([one]).endswith(f"GPU devices 3 → 4{headline}")
    markdown = unescape(page([one], "A test").replace("&#8203;", ""))
    assert f"- <code>dev-lab</code> {costs}\n" in markdown


@pytest.mark.parametrize("annotated", [True, False])
def test_a_new_stack_in_an_existing_namespace_adds_all_its_devices(annotated: bool) -> None:
    """`down` keeps the Namespace with its annotation. A Namespace of an admin has none."""
    after = replicas_of_small(2, PRICE)
    before = copy.deepcopy([item for item in after if item["kind"] in KEPT])
    if not annotated:
        before = [{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "inference-dev"}}]
    up = stack_change("dev-lab", before, after)
    new = stack_change("dev-lab", None, after)
    assert (up.devices, up.costs) == (new.devices, new.costs)
    assert new.devices


def test_an_unchanged_or_removed_stack_costs_the_same() -> None:
    objects = replicas_of_small(1, PRICE)
    same, gone = stack_change("dev-lab", objects, objects), stack_change("old", objects, None)
    for one in (same, gone):
        assert one.costs
        assert one.costs[0] == one.costs[1] != Cost()
        assert all(each.before == each.after for each in one.devices)
    assert "a month" not in terminal_sections([same]).plain + verdict([same]) + page([same], "A test")


@pytest.mark.parametrize("described", [True, False])
def test_devices_that_an_older_version_did_not_record_are_not_compared(described: bool) -> None:
    before, after = replicas_of_small(1, PRICE), replicas_of_small(2, PRICE)
    annotations = next(item for item in before if item["kind"] == "Namespace")["metadata"]["annotations"]
    recorded = json.loads(annotations[settings.ANNOTATION])
    del recorded["devices"]
    annotations[settings.ANNOTATION] = json.dumps(recorded)
    one = stack_change("dev-lab", before, after if described else None)
    text = terminal_sections([one]).plain
    assert "GPU devices: version 0.1.0 did not record them" in text
    assert "a month" not in text + verdict([one])
    assert (one.devices, one.costs) == ([], None)
