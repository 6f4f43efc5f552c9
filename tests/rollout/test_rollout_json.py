import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from rollout.json_document import schema_text

from .conftest import ROOT, Call, Edit, Ended

SCHEMA = ROOT / "docs" / "json.schema.json"
PRODUCTION = ("  - name: prod\n", "  - name: prod\n    production: true\n")
"""Makes images without a digest, which the small definition has, a broken rule."""


def document(ended: Ended) -> Any:
    found = json.loads(ended.out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    assert (found["format"], found["exitCode"]) == (2, ended.code)
    assert found["failure"] == "" or f"{found['failure']}\n" in ended.err
    return found


def test_a_good_definition_is_a_document_and_people_read_the_same_as_ever(call: Call, definition: Path) -> None:
    ended = call("check", definition, "--json", code=0)
    found = document(ended)
    assert call("check", definition).out in ended.err
    assert [(one["name"], one["context"], one["state"]) for one in found["stacks"]] == [
        ("dev-lab", "kind-lab", None),
        ("prod-east", "east", None),
    ]
    assert {(one["level"], one["source"], one["line"]) for one in found["findings"]} == {
        ("advisory", "definition", 21),
        ("advisory", "guardrail", 20),
        ("advisory", "guardrail", 21),
    }


def test_a_file_whose_name_is_not_utf_8_is_reported_too(call: Call, definition: Path) -> None:
    named = definition.rename(definition.with_name("\udcff.yaml"))
    for code, change in ((0, ""), (2, "unknown: 1\n")):
        named.write_text(named.read_text("utf-8") + change, "utf-8")
        assert document(call("check", named, "--json", code=code))["definition"].endswith("/\udcff.yaml")


def test_every_mistake_of_a_definition_has_its_line(call: Call, definition: Path, edit: Edit) -> None:
    edit("kind: nfs", "kind: nsf")
    edit("replicas: 1}]", "replicas: many}]")
    found = document(call("check", definition, "--json", code=2))
    assert [(one["level"], one["file"], one["line"]) for one in found["findings"]] == [
        ("error", str(definition), 6),
        ("error", str(definition), 10),
    ]
    assert found["findings"][1]["path"] == "servers[small].pools[main].replicas"
    assert found["stacks"] == []


def test_a_broken_guardrail_is_at_the_line_of_its_environment(call: Call, definition: Path, edit: Edit) -> None:
    edit(*PRODUCTION)
    found = document(call("check", definition, "--json", code=1))
    broken = [one for one in found["findings"] if one["level"] == "error"]
    assert {(one["source"], *one["stacks"]) for one in broken} == {("guardrail", "prod-east")}
    assert "images-are-pinned-by-digest" in {one["rule"] for one in broken}
    assert "Deployment/inference-proxy" in {one["object"] for one in broken}
    (line,) = {one["line"] for one in broken}
    assert definition.read_text("utf-8").splitlines()[line - 1] == "  - name: prod"


def test_a_preview_has_changes_restarts_and_weaker_protection(preview: Call, edit: Edit) -> None:
    edit('proxy, tag: "1"', 'proxy, tag: "2"')
    edit("principals: [ci]", "principals: [ci, cd]")
    edit("  - {name: dev}", "  - {name: dev, promotion: {principals: [me]}}")
    found = document(preview("--json", code=0))
    dev, prod = found["stacks"]
    assert {"verb": "changed", "kind": "Deployment", "name": "inference-proxy"}.items() <= dev["objects"][-1].items()
    assert "registry.test/proxy:1 → registry.test/proxy:2" in " ".join(dev["objects"][-1]["fields"])
    assert [one["name"] for one in dev["restarts"]] == ["inference-proxy"]
    assert dev["weaker"] == ["newly lets me change the versions of its models"]
    assert {"who": "principal cd", "action": "infer", "models": "one of small, * of *", "wider": True} in prod["grants"]
    assert (prod["state"], prod["weaker"]) == ("changed", [])
    assert "WEAKER" in found["verdict"]


def test_a_secret_is_no_more_in_a_document_than_on_the_screen(preview: Call, edit: Edit) -> None:
    edit("servers:\n", "pods: {annotations: {web: 'https://me:hunter2-hunter2@web.test'}}\nservers:\n")
    ended = preview("--json")
    fields = [field for stack in document(ended)["stacks"] for one in stack["objects"] for field in one["fields"]]
    assert [field for field in fields if "web" in field]
    assert "hunter2" not in ended.text


def test_the_plan_of_a_rollout_is_for_dry_runs_alone(call: Call, definition: Path, tmp_path: Path) -> None:
    rollout = ("rollout", definition, "--environment", "prod", "--json", "--journals", tmp_path / "journals")
    found = document(call(*rollout, code=2))
    assert "--dry-run" in found["failure"]


def test_the_schema_in_the_docs_is_that_of_the_code_and_the_page_names_every_field() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text(), "make docs"
    page = (ROOT / "docs" / "json.md").read_text("utf-8")
    schema = json.loads(schema_text())
    parts = [schema, *(schema["$defs"][name] for name in ("Found", "SeenStack"))]
    fields = {name for part in parts for name in part["properties"]}
    assert [name for name in sorted(fields) if not re.search(rf"[`.]{name}`", page)] == []
