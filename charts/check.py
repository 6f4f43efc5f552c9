"""`make check-chart`: may these values be installed? The chart's schema, its templates, then the guardrails."""

import datetime
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import yaml

from policies.guardrails import check
from policies.guardrails.report import report, summary
from rollout.errors import RolloutError
from stacks.load import Document, load
from stacks.problems import DefinitionError, escaped
from tools import ToolError

from .helm import TIMEOUT_SECONDS, helm
from .schema_problems import is_refusal, problems

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_values(file: Path, chart: Path, today: datetime.date) -> None:
    """Check a values file and say what is in it.

    Raises DefinitionError where the file is wrong, and RolloutError where a guardrail that is mandatory is broken.
    """
    try:
        objects = rendered(load(file), chart)
    except DefinitionError as error:
        raise DefinitionError(error.problems, "nothing was installed") from None
    findings = {"": check(objects, today)}
    text, counts, name = report(findings), summary(findings), escaped(str(file))
    if any(each.severity == "mandatory" for each in findings[""]):
        raise RolloutError(
            f"{text}\n{counts} in {name}; nothing was installed. docs/guardrails.md explains the rules, and how one of "
            "them is waived."
        )
    print(f"{name}: ok – {len(objects)} objects" + (f", {counts}\n{text}" if text else ""))


def rendered(document: Document, chart: Path) -> list[dict[str, Any]]:
    """Return the objects that the chart makes of a values file; raise DefinitionError when it refuses them."""
    try:
        result = helm(["template", "check", chart, "--values", document.file])
    except ToolError as error:
        raise RolloutError(str(error)) from None
    except TimeoutExpired:
        raise RolloutError(f"Helm did not render the chart within {TIMEOUT_SECONDS} s.") from None
    if result.returncode:
        if is_refusal(result.stderr) and (found := problems(result.stderr, document)):
            raise DefinitionError(found)
        raise RolloutError(
            f"Helm cannot make the chart's objects of {escaped(document.file)}:\n{result.stderr.strip()}"
        )
    return [item for item in yaml.load_all(result.stdout, Loader=_LOADER) if item]
