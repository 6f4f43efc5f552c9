"""Checks Kubernetes objects in YAML of other programs against the guardrails."""

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from policies.guardrails.checking import check, judged, printable, report, summary
from policies.guardrails.settings import held_to
from stacks.command import WRONG_INPUT, CommandError, reason
from stacks.problems import counted

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 100


def check_manifests(file: str) -> None:
    """Check the objects in a file, or on standard input for -, against the guardrails, and print the findings. Raises
    CommandError with every finding if one is mandatory."""
    name = "standard input" if file == "-" else printable(file)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        objects = [*_objects(documents(text))]
    except OSError as error:
        raise CommandError(reason(error), WRONG_INPUT) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"{name} does not contain Kubernetes objects: {error}", WRONG_INPUT) from None
    environments = judged(objects)
    if not environments:
        what = f"{name} contains no namespace of Tidegate, so the guardrails have nothing to check."
        raise CommandError(f"{what}\nIts objects need the label app.kubernetes.io/part-of: tidegate.", WRONG_INPUT)
    findings = {"": check(objects, datetime.now(UTC).date())}
    found, counts = report(findings), summary(findings)
    held = [printable(f"rules for {each.namespace}: {held_to(each.settings)}") for each in environments]
    if any(each.severity == "mandatory" for each in findings[""]):
        why = f"{counts} in {name}. docs/guardrails.md explains the rules, and how to waive one."
        raise CommandError("\n".join([found, *held, why]))
    ok = f"{name}: ok – {counted(objects, 'object')}" + (f", {counts}" if counts else "")
    print("\n".join([ok, *([found] if found else []), *held]))


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML text. Raises YAMLError, RecursionError, or ValueError for an impossible date."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:  # the loader, which is written in C, would crash
            raise RecursionError("it is nested too deeply")
    return list(yaml.load_all(text, Loader=_LOADER))


def _objects(trees: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the Kubernetes objects in documents, and for a List its items."""
    for tree in trees:
        if not isinstance(tree, dict):
            if tree is not None:
                raise ValueError("a document is not a Kubernetes object")
        elif isinstance(tree.get("items"), list) and str(tree.get("kind")).endswith("List"):
            yield from _objects(tree["items"])
        else:
            yield tree
