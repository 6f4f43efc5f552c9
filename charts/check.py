"""`make check-chart`: may these values be installed?

The chart's schema, its templates, the definition's own rules, then the guardrails.
"""

import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab import tools
from lab.tools import ToolError
from policies.guardrails import ANNOTATION, annotation, check
from policies.guardrails.checking import judged, report, summary
from policies.guardrails.settings import Settings, held_to
from stacks.command import CommandError
from stacks.definition.proxy import PROXY
from stacks.load import Document, parse
from stacks.problems import DefinitionError, Problem, advisory_text, did_you_mean, escaped, listed, nearest
from stacks.reading.files import read_text

from .read_back import rule_problems, unsaid
from .schema_problems import is_refusal, problems
from .values_schema import GLOBAL

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COPY = "values-that-are-checked.yaml"
TIMEOUT_SECONDS = 120


def check_values(file: Path, chart: Path, today: datetime.date) -> None:
    """Check a values file and say what is in it, and what it was held to.

    Raises DefinitionError where the file is wrong, and CommandError where a guardrail that is mandatory is broken.
    """
    name = escaped(str(file))
    try:
        advisories, objects = rendered(read_text(str(file)), str(file), chart)
    except DefinitionError as error:
        raise DefinitionError(error.problems, "nothing was installed") from None
    by_default = _held_by_default(objects)
    environments = judged(objects)
    if not environments:
        raise CommandError(f"{name}: no object belongs to an environment, so the guardrails have nothing to look at.")
    findings = {"": check(objects, today)}
    text, counts = report(findings), summary(findings)
    held = escaped(" | ".join(f"held to: {held_to(each.settings)}" for each in environments)) + by_default
    if any(each.severity == "mandatory" for each in findings[""]):
        raise CommandError(
            f"{text}\n{held}\n{counts} in {name}; nothing was installed. docs/guardrails.md explains the rules, and "
            "how one of them is waived."
        )
    print(f"{name}: ok – {len(objects)} objects" + (f", {counts}" if text else ""))
    print("\n".join(part for part in (advisory_text(advisories), text, held) if part))


def _held_by_default(objects: list[dict[str, Any]]) -> str:
    """Note on a namespace that says nothing of it what it is held to; return that in words, where it is a trial."""
    images = [
        container["image"]
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", PROXY)
        for container in item["spec"]["template"]["spec"]["containers"]
    ]
    said = ""
    for item in objects:
        noted = item["metadata"].setdefault("annotations", {}) if item["kind"] == "Namespace" else {ANNOTATION: ""}
        if ANNOTATION not in noted and (settings := unsaid(images[0])) != Settings():
            noted[ANNOTATION] = annotation(settings)
            said = f"\n    namespace.annotations say nothing of it, and {images[0]} is built on its node: a trial."
    return said


def _unknown_globals(document: Document) -> Iterator[Problem]:
    """Yield keys below global that this chart does not read: other charts of a release may, so that Helm takes any."""
    known = [*GLOBAL["properties"]]
    for key in document.get(("global",)) or {}:
        if key not in known:
            do = f"{did_you_mean(nearest(key, known))}It reads: {listed(known)}."
            yield document.problem(("global", key), "this chart reads no such key", do=do, severity="advisory")


def rendered(text: str, file: str, chart: Path) -> tuple[list[Problem], list[dict[str, Any]]]:
    """Return advisories, and the objects that the chart makes of values; `file` is what messages call them.

    Raises DefinitionError when they are refused.
    """
    document = parse(text, file)
    result = _template(text, chart)
    refused = is_refusal(result.stderr)
    # Values that the schema refuses cannot become a definition: then only Helm's messages are shown.
    found = (
        problems(result.stderr, document) if refused else rule_problems(document, read_text(str(chart / "values.yaml")))
    )
    if errors := [problem for problem in found if problem.severity == "error"]:
        raise DefinitionError(errors)
    if result.returncode:
        said = result.stderr.strip().replace(_COPY, escaped(file))
        raise CommandError(f"Helm cannot make the chart's objects of {escaped(file)}:\n{said}")
    return [*found, *_unknown_globals(document)], [
        item for item in yaml.load_all(result.stdout, Loader=_LOADER) if item
    ]


def _template(text: str, chart: Path) -> subprocess.CompletedProcess[str]:
    if tools.missing("helm"):
        print("Helm renders the chart, and none that fits is on the PATH: it is built first, once.", file=sys.stderr)
    # Helm is given what was read here: a pipe gives its content once, and a file may have changed in between. It is
    # named from within its folder, because Helm splits names at commas.
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-values-") as folder:  # nobody else may look into it
            copy = Path(folder, _COPY)
            copy.touch(0o600)
            copy.write_bytes(text.encode())
            return helm(["template", "check", chart.resolve(), "--values", _COPY], Path(folder))
    except ToolError as error:
        raise CommandError(str(error)) from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"Helm did not render the chart within {TIMEOUT_SECONDS} s.") from None


def helm(arguments: Sequence[str | Path], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm, in a folder, without a cluster and anybody's settings; raises ToolError when it cannot be had."""
    # Its own folders may hold plug-ins, repositories and credentials: none of them has a say in what a chart is.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    environment |= {"KUBECONFIG": os.devnull, "HELM_PLUGINS": os.devnull, "HELM_REGISTRY_CONFIG": os.devnull}
    command, limit = [str(tools.path("helm")), *map(str, arguments)], TIMEOUT_SECONDS
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace", timeout=limit
    )
