"""Objects of stacks that break no guardrail, for tests to edit, and the findings about them."""

import copy
import json
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from components import Environment
from components.evaluate import evaluate
from policies.guardrails import ANNOTATION, Finding, check
from stacks.images_lock import ImagesLock, PinnedImage
from stacks.resolve import resolve
from stacks.stack import Definition
from stacks.validate import read_definition
from tests.cases import GONE
from tests.components.objects import named, template

ROOT = Path(__file__).parents[2]
DEFINITIONS = (ROOT / "stacks/inference.yaml", *sorted((ROOT / "tests/definitions").glob("*.yaml")))
SMALL, MAIN, PROXY = "ondemand-small", "preload-main", "inference-proxy"
"""An on-demand pool, a preload pool, and the proxy of the reference."""
TODAY = date(2026, 11, 21)

Object = dict[str, Any]
Objects = list[Object]
Edit = Callable[[Objects], None]


def pinned(definition: Definition) -> ImagesLock:
    references = {image.reference for stack in definition.stacks for image in stack.platform.images}
    return ImagesLock(
        images=tuple(PinnedImage(image=name, digest=f"sha256:{n:064x}") for n, name in enumerate(sorted(references)))
    )


@cache
def rendered(path: Path) -> dict[str, Objects]:
    definition = read_definition(path)
    lock = pinned(definition)
    return {
        stack.name: evaluate(lambda stack=stack: Environment(stack.name, resolve(stack, lock)))  # type: ignore[misc]
        for stack in definition.stacks
    }


def prod() -> Objects:
    """The reference's production with digests, which breaks no rule. Tests may change it."""
    return copy.deepcopy(rendered(DEFINITIONS[0])["prod-east"])


def everything() -> Objects:
    """The environment with most features, likewise."""
    return copy.deepcopy(rendered(ROOT / "tests/definitions/everything.yaml")["prod-all"])


def shared_frontends() -> Objects:
    """A production environment with shared Dynamo frontends, likewise."""
    return copy.deepcopy(rendered(ROOT / "tests/definitions/two-kinds.yaml")["prod-east"])


def findings(objects: Objects, today: date = TODAY) -> list[Finding]:
    return check(objects, today)


def settings(objects: Objects, **changes: Any) -> None:
    """Change the settings in the Namespace. None removes a key."""
    (namespace,) = (item for item in objects if item["kind"] == "Namespace")
    annotations = namespace["metadata"]["annotations"]
    tree = json.loads(annotations[ANNOTATION]) | changes
    annotations[ANNOTATION] = json.dumps({key: value for key, value in tree.items() if value is not None})


def pod(objects: Objects, name: str, kind: str = "StatefulSet") -> Object:
    spec: Object = template(named(objects, kind, name))["spec"]
    return spec


def place(tree: Any, path: str, value: Any) -> None:
    """Put a value at a path such as `spec/ports/0/name`. ~ is a slash in a key, and + is the end of a list."""
    steps = [int(step) if step.isdigit() else step.replace("~", "/") for step in path.split("/")]
    for step in steps[:-1]:
        tree = tree.setdefault(step, {}) if isinstance(tree, dict) else tree[step]
    if value is GONE:
        del tree[steps[-1]]
    elif steps[-1] == "+":
        tree.extend(value)
    else:
        tree[steps[-1]] = value


def at(kind: str, name: str, path: str, value: Any) -> Edit:
    return lambda objects: place(named(objects, kind, name), path, value)


def in_small(path: str, value: Any) -> Edit:
    """An edit of the pod of ondemand-small, an on-demand pool on MIG slices."""
    return at("StatefulSet", SMALL, f"spec/template/spec/{path}", value)


def thing(kind: str, name: str, **rest: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "inference-prod"}, **rest}
