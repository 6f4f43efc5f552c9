"""`make check-chart`: may these values be installed? The chart's schema, its templates, then the guardrails."""

import datetime
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from policies.guardrails import check
from policies.guardrails.checking import judged
from policies.guardrails.report import report, summary
from policies.guardrails.settings import held_to
from rollout.errors import RolloutError
from stacks.load import Document, parse
from stacks.overlays import names_twice
from stacks.problems import DefinitionError, Problem, escaped
from stacks.reading.files import read_text
from tools import ToolError

from .helm import TIMEOUT_SECONDS, helm
from .schema_problems import is_refusal, problems

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COPY = "values-that-are-checked.yaml"


def check_values(file: Path, chart: Path, today: datetime.date) -> None:
    """Check a values file and say what is in it, and what it was held to.

    Raises DefinitionError where the file is wrong, and RolloutError where a guardrail that is mandatory is broken.
    """
    name = escaped(str(file))
    try:
        objects = rendered(read_text(str(file)), str(file), chart)
    except DefinitionError as error:
        raise DefinitionError(error.problems, "nothing was installed") from None
    environments = judged(objects)
    if not environments:
        raise RolloutError(f"{name}: no object belongs to an environment, so the guardrails have nothing to look at.")
    findings = {"": check(objects, today)}
    text, counts = report(findings), summary(findings)
    held = escaped(" | ".join(f"held to: {held_to(each.settings)}" for each in environments))
    if any(each.severity == "mandatory" for each in findings[""]):
        raise RolloutError(
            f"{text}\n{held}\n{counts} in {name}; nothing was installed. docs/guardrails.md explains the rules, and "
            "how one of them is waived."
        )
    print(f"{name}: ok – {len(objects)} objects" + (f", {counts}\n{text}" if text else "") + f"\n{held}")


def rendered(text: str, file: str, chart: Path) -> list[dict[str, Any]]:
    """Return the objects that the chart makes of values; `file` is what messages call them.

    Raises DefinitionError when they are refused.
    """
    document = parse(text, file)
    result = _template(text, chart)
    if result.returncode:
        if is_refusal(result.stderr) and (found := problems(result.stderr, document)):
            raise DefinitionError(found)
        if not is_refusal(result.stderr) and (found := list(_twice(document))):
            raise DefinitionError(found)
        said = result.stderr.strip().replace(_COPY, escaped(file))
        raise RolloutError(f"Helm cannot make the chart's objects of {escaped(file)}:\n{said}")
    if found := list(_twice(document)):
        raise DefinitionError(found)
    return [item for item in yaml.load_all(result.stdout, Loader=_LOADER) if item]


def _template(text: str, chart: Path) -> subprocess.CompletedProcess[str]:
    # Helm is given what was read here: a pipe gives its content once, and a file may have changed in between. It is
    # named from within its folder, because Helm splits names at commas.
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-values-") as folder:  # nobody else may look into it
            copy = Path(folder, _COPY)
            copy.touch(0o600)
            copy.write_bytes(text.encode())
            return helm(["template", "check", chart.resolve(), "--values", _COPY], Path(folder))
    except ToolError as error:
        raise RolloutError(str(error)) from None
    except subprocess.TimeoutExpired:
        raise RolloutError(f"Helm did not render the chart within {TIMEOUT_SECONDS} s.") from None


def _twice(document: Document) -> Iterator[Problem]:
    """Yield names that stand twice in a list, and pools of two servers whose objects would have the same name."""
    for path, name, section in names_twice(document.tree):
        items: list[Any] = document.get(path[:-2])
        earlier = next(n for n, item in enumerate(items) if isinstance(item, dict) and item.get("name") == name)
        where = f"The first is at {document.position((*path[:-2], earlier))}."
        yield document.problem(path, f'"{name}" stands twice in {section}', where, "Give one of them another name.")
    first: dict[str, tuple[str | int, ...]] = {}
    serving: dict[str, tuple[str | int, ...]] = {}
    servers: list[dict[str, Any]] = document.tree.get("servers") or []
    for number, server in enumerate(servers):
        for index, pool in enumerate(server.get("pools") or []):
            path = ("servers", number, "pools", index)
            name = f"{server['name']}-{pool['name']}"
            other = first.setdefault(name, path)
            if other[1] != number and servers[int(other[1])]["name"] != server["name"]:
                what = f'its objects would be called "{name}", as those of {document.path_text(other)} are'
                where = f"That one is at {document.position(other)}."
                yield document.problem(path, what, where, "Give one of them another name.")
            for place, model in enumerate(pool.get("models") or []):
                elsewhere = serving.setdefault(model["name"], path)
                if elsewhere != path:
                    what = f'"{model["name"]}" is served by {document.path_text(elsewhere)} already'
                    where = f"That pool is at {document.position(elsewhere)}."
                    do = "A model is served by one pool of one server."
                    yield document.problem((*path, "models", place, "name"), what, where, do)
