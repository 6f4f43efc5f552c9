"""The schema refuses the values that the definition would refuse. Other tests render valid values with Helm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from charts import CHART, values_of
from charts.arguments import arguments
from charts.values_schema import values_schema
from components import EnvironmentArgs
from stacks.model_keys import Model
from stacks.problems import readable_path
from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.cases import GONE

from .broken_values import BASE, REFUSED, STOPPED, Values, edited
from .rendering import ROOT, helm


def all_sections(owner: Model) -> Iterator[Model]:
    yield owner
    for argument in arguments(owner):
        for kind in argument.models:
            yield from all_sections(kind)


def title(owner: Model) -> str:
    return owner.__name__.removesuffix("Args")


SCHEMA = values_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
DEFINITION = read_definition(ROOT / "tests/definitions/everything.yaml")
EVERYTHING = values_of(resolve(DEFINITION.stacks[0], DEFINITION.lock))
CLASSES = sorted({*all_sections(EnvironmentArgs)}, key=lambda each: each.__name__)
SERVER, PRELOAD, ON_DEMAND = "servers[preload]", "servers[preload].pools[mixed]", "servers[ondemand].pools[single]"
ACCESS = {"name": "x", "groups": ["g"], "servers": ["*"], "models": ["*"]}


# A path, and the wrong value.
WRONG: dict[str, tuple[str, Any]] = {
    "an unknown key at the top": ("nonsense", 1),
    "a key that is mistyped": ("proxy.replica", 3),
    "a number that is text": ("proxy.replicas", "2"),
    "no name": (f"{SERVER}.name", GONE),
    "an unknown kind of server": (f"{SERVER}.kind", "vllm"),
    "a key of another loading mode": (f"{PRELOAD}.loading.leaseSeconds", 15),
    "a capacity that is no quantity": (f"{ON_DEMAND}.loading.capacity", "8 GB"),
    "a node label whose value is a number": (f"{PRELOAD}.nodeSelector", {"rack": 7}),
    "an image with a space": ("proxy.image", "proxy :1"),
    "an Ingress without its host": ("proxy.exposure", {"kind": "ingress", "path": "/"}),
    "no pools": (f"{SERVER}.pools", []),
    "every GPU of a node": (f"{SERVER}.triton.environment", {"NVIDIA_VISIBLE_DEVICES": "all"}),
    "an argument that Tidegate sets":
        (f"{SERVER}.triton.extraArguments", ["--http-restricted-api=model-repository:x=y"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_helm_refuses_the_mistakes_of_definitions_with_their_paths(what: str, tmp_path: Path) -> None:
    path, value = WRONG[what]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(edited({path: value}, EVERYTHING)), "utf-8")
    done = helm(["template", "release", CHART, "--values", file])
    assert done.returncode != 0
    assert path.rpartition(".")[2] in done.stderr.partition("don't meet the specifications of the schema")[2]


def test_the_values_are_valid_before_each_edit() -> None:
    VALIDATOR.validate(EVERYTHING)
    VALIDATOR.validate(BASE)


@pytest.mark.parametrize("rule", REFUSED)
def test_helm_reports_the_path_of_values_that_break_a_rule(rule: str) -> None:
    values = edited(REFUSED[rule]["change"])
    assert any(REFUSED[rule]["at"] in readable_path(values, [*error.path]) for error in VALIDATOR.iter_errors(values))


@pytest.mark.parametrize("what", STOPPED)
def test_helm_refuses_harmful_values_even_without_the_schema(what: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(edited(STOPPED[what]["change"])), "utf-8")
    done = helm(["template", "release", CHART, "--skip-schema-validation", "--values", file])
    assert done.returncode != 0
    assert STOPPED[what]["says"] in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"servers": BASE["servers"] * 2},
        {"servers[bucket].pools": BASE["servers"][1]["pools"] * 2},
        {"datasets": BASE["datasets"] * 2},
    ],
    ids=["servers", "pools", "datasets"],
)
def test_helm_stops_at_two_objects_of_one_name(change: Values, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(edited(change)), "utf-8")
    done = helm(["template", "release", CHART, "--values", file])
    assert done.returncode != 0
    assert "twice: rename one of the servers, pools, datasets or models" in done.stderr


def test_null_removes_optional_values() -> None:
    for owner in CLASSES:
        section = SCHEMA if owner is EnvironmentArgs else SCHEMA["definitions"][title(owner)]
        for argument in arguments(owner):
            validator = jsonschema.Draft7Validator(
                {**section["properties"][argument.name], "definitions": SCHEMA["definitions"]}
            )
            assert validator.is_valid(None) == (not argument.field.is_required()), (owner, argument.name)


def test_every_section_is_closed_and_every_key_is_explained() -> None:
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for name, section in SCHEMA["definitions"].items():
        assert section["additionalProperties"] is False, name
        assert section["description"], name
    for owner in CLASSES:
        section = SCHEMA if owner is EnvironmentArgs else SCHEMA["definitions"][title(owner)]
        assert all(section["properties"][each.name]["description"] for each in arguments(owner)), owner
    assert SCHEMA["additionalProperties"] is False
    assert len({title(owner) for owner in CLASSES}) == len(CLASSES)


def test_nothing_in_the_schema_is_left_open() -> None:

    def anything(node: Any, path: str) -> Iterator[str]:
        if isinstance(node, dict):
            if not node.keys() & {"type", "enum", "const", "anyOf", "allOf", "$ref"} and path.endswith(("}", "]")):
                yield path
            for key, each in node.get("properties", {}).items():
                yield from anything(each, f"{path}.{{{key}}}")
            for key in ("items", "additionalProperties"):
                if isinstance(node.get(key), dict):
                    yield from anything(node[key], f"{path}[{key}]")

    open_ones = [
        path for name, section in [("", SCHEMA), *SCHEMA["definitions"].items()] for path in anything(section, name)
    ]
    assert open_ones == []
