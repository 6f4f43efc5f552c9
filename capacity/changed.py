"""A change of the definition as people paste it: its text, its place, and whether `tidegate check` takes it."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from policies.guardrails.money import Cost, cost, money, price_of
from stacks import devices
from stacks.load import Document, load
from stacks.overlays import REMOVE
from stacks.problems import DefinitionError, listed
from stacks.reading.tree import Node
from stacks.stack import Definition, Stack
from stacks.validate import validate

from .remedies import Subject

_WHO = ": raise it with whoever pays, or take fewer"


def overlay(subject: Subject, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change as a part of the whole definition: laid over the environment that the pool is in."""
    return {"environments": [{"name": subject.stack.environment.name, **change}]}


def overlay_text(subject: Subject, change: Mapping[str, Any]) -> str:
    """Return the same as YAML."""
    return yaml.safe_dump(overlay(subject, change), sort_keys=False, default_flow_style=False, width=100)


def place(definition: Definition, subject: Subject) -> str:
    """Return where it is to be pasted, in words."""
    return place_of(definition, subject.stack.environment.name)


def place_of(definition: Definition, environment: str) -> str:
    """Return where what is laid over an environment is to be pasted, in words."""
    index = [each.name for each in definition.header.environments].index(environment)
    where = definition.document.position(("environments", index))
    planes = [each.data_plane.name for each in definition.stacks if each.environment.name == environment]
    every = f"; it holds on {listed(planes)}" if len(planes) > 1 else ""
    return f"{where.file}:{where.line}, over what the environment {environment} has{every}"


def changed(definition: Definition, subject: Subject, change: Mapping[str, Any]) -> Definition:
    """Return the definition with the change; raises DefinitionError with what `tidegate check` would say of it."""
    return pasted(definition, overlay_text(subject, change))


def why_refused(definition: Definition, subject: Subject, change: Mapping[str, Any]) -> list[str]:
    """Return what `tidegate check` would say against the definition with the change; nothing where it takes it."""
    return refusals(definition, overlay_text(subject, change))


def pasted(definition: Definition, text: str) -> Definition:
    """Return the definition with a part of it pasted over what it has; raises DefinitionError where it is wrong then.

    What is wrong is said with the lines of both texts.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "change.yaml"
        file.write_text(text, "utf-8")
        part = load(file)
    root = _over(definition.document.root, part.root)
    return validate(Document(root.value, definition.file, root), definition.lock, definition.lock_document)


def refusals(definition: Definition, text: str) -> list[str]:
    """Return what `tidegate check` would say against the definition with a part of it pasted; nothing if it accepts.

    Of the guardrails those are asked that a change of pools can break: the ceilings of slices and of money.
    """
    try:
        after = pasted(definition, text)
    except DefinitionError as error:
        return [problem.what for problem in error.problems]
    return [why for stack in after.stacks for why in _beyond_ceilings(stack)]


def _over(under: Node, over: Node) -> Node:
    """Return a part of a definition written over another, as a person does it: `null` and `remove` stay as they are."""
    if isinstance(under.value, dict) and isinstance(over.value, dict):
        parts = {**under.parts}
        for key, part in over.parts.items():
            parts[key] = _over(parts[key], part) if key in parts else part
        return replace(over, value={key: part.value for key, part in parts.items()}, parts=parts)
    if over.value and _is_named(under) and _is_named(over):
        items = {part.value["name"]: part for part in under.parts.values()}
        for part in over.parts.values():
            name = part.value["name"]
            is_new = name not in items or part.value.get(REMOVE) is True
            items[name] = part if is_new else _over(items[name], part)
        return replace(over, value=[part.value for part in items.values()], parts=dict(enumerate(items.values())))
    return over


def _is_named(node: Node) -> bool:
    """Say whether this is a list that overlays merge by the names of its items."""
    items = node.value if isinstance(node.value, list) else [None]
    return all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items)


def _beyond_ceilings(stack: Stack) -> Iterator[str]:
    """Yield what guardrails say of the devices that a stack takes."""
    held_to = stack.platform.guardrails
    gpus, asked = stack.data_plane.gpus, devices.asked(pool for _, _, pool in stack.pools())
    prices, currency = devices.prices(gpus), devices.currency(gpus)
    each = (
        cost(count, price_of(prices, device.profile or device.kind, product or ""), currency)
        for (device, product), count in asked.items()
    )
    total, slices, budget = sum(each, Cost()), held_to.gpu_slices, held_to.monthly_budget
    if slices is not None and total.devices > slices:
        yield f"{stack.name} takes {total.devices} GPU devices, and its guardrails.gpuSlices is {slices}{_WHO}"
    if budget is not None and (total.month is None or total.month > budget):
        yield f"{stack.name} costs {total} a month, and its guardrails.monthlyBudget is {money(budget, currency)}{_WHO}"
