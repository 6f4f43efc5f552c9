import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.app import app
from rollout.render import render
from stacks.validate import read_definition

from .conftest import ROOT

REFERENCE = ROOT / "stacks" / "inference.yaml"
ANNOTATION = "tidegate.dev/guardrails"
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def objects() -> Objects:
    definition = read_definition(REFERENCE)
    return [*render(definition.stacks[0], definition).objects]


def guardrails(text: str | bytes, file: str | Path = "-") -> Result:
    result = CliRunner().invoke(app, ["guardrails", str(file)], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def held_to(objects: Objects, settings: str | None) -> str:
    """The objects as a stream of documents, with other settings on their Namespace."""
    copy: list[dict[str, Any]] = json.loads(json.dumps(objects))
    (namespace,) = (item for item in copy if item["kind"] == "Namespace")
    annotations = namespace["metadata"]["annotations"]
    del annotations[ANNOTATION]
    if settings is not None:
        annotations[ANNOTATION] = settings
    return yaml.safe_dump_all(copy)


def test_a_stack_passes_from_standard_input_from_a_file_and_as_a_list(objects: Objects, tmp_path: Path) -> None:
    text = yaml.safe_dump_all(objects)
    result = guardrails(text)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"ok – {len(objects)} objects" in result.stdout
    assert "rules for inference-dev: shared; severities changed: none; waivers: none\n" in result.stdout
    file = tmp_path / "objects.yaml"
    file.write_text(text, "utf-8")
    assert guardrails("", file).stdout == result.stdout.replace("standard input", str(file))
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    assert guardrails(yaml.safe_dump_all([None, listed])).stdout == result.stdout


@pytest.mark.parametrize("settings", ['{"kind": "production"}', None, '{"kind": "home"}', '{"kind": "shared", "a": 1}'])
def test_production_and_unknown_namespaces_refuse_objects_that_break_a_mandatory_guardrail(
    objects: Objects, settings: str | None
) -> None:
    result = guardrails(held_to(objects, settings))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "rules for inference-dev: production" in result.stderr
    assert ", mandatory here." in result.stderr
    assert ("its guardrails cannot be read" in result.stderr) == (settings not in (None, '{"kind": "production"}'))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "standard input does not contain Kubernetes objects"),
        ("[" * 200, "nested too deeply"),
        ("a: 2026-02-30", "day is out of range"),
        ("--- text\n", "a document is not a Kubernetes object"),
        (b"\xff", "invalid start byte"),
        ("", "contains no namespace of Tidegate"),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "contains no namespace of Tidegate"),
    ],
)
def test_input_without_objects_is_refused_with_a_reason(text: str | bytes, reason: str) -> None:
    result = guardrails(text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


@pytest.mark.parametrize(("file", "why"), [("/nowhere.yaml", "No such file or directory"), ("/", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named_as_wrong_input(file: str, why: str) -> None:
    result = guardrails("", file)
    assert (result.exit_code, result.stderr) == (2, f"{file}: {why}\n")
