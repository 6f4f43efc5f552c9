"""The schema refuses what the definition would; that it takes what a definition gives is seen where Helm renders it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from charts import CHART
from charts.arguments import all_sections, arguments, title
from charts.check import rendered
from charts.folder import scenarios
from charts.values_schema import values_schema
from components import EnvironmentArgs
from stacks.problems import DefinitionError
from tests.cases import GONE

from .broken_values import edited

SCHEMA = values_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
EVERYTHING: dict[str, Any] = yaml.safe_load(scenarios()["everything-values.yaml"])
CLASSES = sorted({*all_sections(EnvironmentArgs)}, key=lambda each: each.__name__)
SERVER, PRELOAD, ON_DEMAND = "servers[preload]", "servers[preload].pools[mixed]", "servers[ondemand].pools[single]"
ACCESS = {"name": "x", "groups": ["g"], "servers": ["*"], "models": ["*"]}


# Where, what is put there, and what is said about it.
WRONG: dict[str, tuple[str, Any, str]] = {
    "an unknown key at the top": ("nonsense", 1, "no such key"),
    "a key that is mistyped": ("proxy.replica", 3, "Did you mean replicas?"),
    "a number that is text": ("proxy.replicas", "2", "whole number is wanted"),
    "a text that is a number": ("name", 5, "text is wanted"),
    "a mapping that is a list": ("proxy", [], "a mapping is wanted"),
    "a truth value that is text": ("monitoring.rules", "yes", "true or false is wanted"),
    "more replicas than anybody has": (f"{PRELOAD}.replicas", 1001, "at most 1,000"),
    "no name": (f"{SERVER}.name", GONE, "name is missing"),
    "an upper-case name": (f"{SERVER}.name", "Preload", "form"),
    "an unknown kind of server": (f"{SERVER}.kind", "vllm", "triton"),
    "an unknown loading mode": (f"{PRELOAD}.loading.mode", "sometimes", "preload"),
    "a key of another loading mode": (f"{PRELOAD}.loading.leaseSeconds", 15, "no such key"),
    "a capacity as a number of bytes": (f"{ON_DEMAND}.loading.capacity", 2**30, "text is wanted"),
    "a capacity that is no quantity": (f"{ON_DEMAND}.loading.capacity", "8 GB", "such as 512Mi or 16Gi"),
    "a toleration whose operator is none": ("proxy.tolerations", [{"key": "a", "operator": "Is"}], "Exists"),
    "an affinity with an unknown key": ("proxy.affinity", {"nodes": {}}, "no such key"),
    "a pull policy that is none": ("pods", {"imagePullPolicy": "Sometimes"}, "IfNotPresent"),
    "cores that are no quantity": ("proxy.resources.cpu", "two", "Expected a Kubernetes quantity, such as 500m or 2."),
    "a MIG profile that is none": (f"{PRELOAD}.placement.profile", "1gb.10g", "form"),
    "a node label that is none": (f"{PRELOAD}.nodeSelector", {"a b": "c"}, "no such key"),
    "a node label whose value is a number": (f"{PRELOAD}.nodeSelector", {"rack": 7}, "text is wanted"),
    "a toleration of an unknown effect": ("proxy.tolerations", [{"key": "a", "effect": "Never"}], "NoSchedule"),
    "an image with a space": ("proxy.image", "proxy :1", "form"),
    "an Ingress without its host": ("proxy.exposure", {"kind": "ingress", "path": "/"}, "host is missing"),
    "an action that there is not": ("proxy.access", [{**ACCESS, "actions": ["train"]}], "infer"),
    "a caller with an unknown key":
        ("network.callers", [{"name": "a", "cidr": "10.0.0.0/8", "everybody": True}], "no such key"),
    "a caller that is nobody": ("network.callers", [{"name": "a"}], "say who"),
    "no pools": (f"{SERVER}.pools", [], "this has 0 items, and it must have at least 1"),
    "a claim whose name is too long": ("claims[already-there].name", "c" * 254, "at most 253"),
    "an argument that Tidegate sets":
        (f"{SERVER}.triton.arguments", ["--http-restricted-api=model-repository:x=y"], "Tidegate sets itself"),
    "a folder outside of its volume": (f"{SERVER}.repository.subPath", "../../etc", "below the volume's root"),
    "an exported path with dots": ("datasets[export].source.path", "/srv/../etc", "without . and .."),
}  # fmt: skip


def problems_in(values: dict[str, Any], folder: Path) -> list[str]:
    """What `make check-chart` says about values, by the real Helm."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False), "utf-8")
    with pytest.raises(DefinitionError) as caught:
        rendered(file.read_text("utf-8"), str(file), CHART)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("what", WRONG)
def test_what_the_definition_refuses_is_refused_where_it_stands(what: str, tmp_path: Path) -> None:
    path, value, said = WRONG[what]
    values = edited({path: value}, EVERYTHING)
    assert not VALIDATOR.is_valid(values)
    (problem,) = problems_in(values, tmp_path)
    key = path.rpartition(".")[2]
    line = int(problem.removeprefix(f"{tmp_path}/values.yaml:").partition(":")[0])
    assert said in problem
    # The field is named, and the line is its own, or its owner's where it is not there.
    assert key in problem or key in (tmp_path / "values.yaml").read_text("utf-8").splitlines()[line - 1]


def test_several_mistakes_are_all_said_in_the_order_of_the_file(tmp_path: Path) -> None:
    values = edited({"proxy.replicas": "many", f"{SERVER}.name": "UPPER", "more": 1}, EVERYTHING)
    problems = problems_in(values, tmp_path)
    lines = [int(problem.split(":")[1]) for problem in problems]
    assert len(problems) == 3
    assert lines == sorted(lines)


def test_null_takes_away_what_need_not_be_there() -> None:
    for owner in CLASSES:
        section = SCHEMA if owner is EnvironmentArgs else SCHEMA["definitions"][title(owner)]
        for argument in arguments(owner):
            validator = jsonschema.Draft7Validator(
                {**section["properties"][argument.key], "definitions": SCHEMA["definitions"]}
            )
            assert validator.is_valid(None) == (not argument.required), (owner, argument.key)


def test_every_section_is_closed_and_every_key_is_explained() -> None:
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for name, section in SCHEMA["definitions"].items():
        assert section["additionalProperties"] is False, name
        assert section["description"], name
    for owner in CLASSES:
        section = SCHEMA if owner is EnvironmentArgs else SCHEMA["definitions"][title(owner)]
        assert all(section["properties"][each.key]["description"] for each in arguments(owner)), owner
    assert SCHEMA["additionalProperties"] is False
    assert len({title(owner) for owner in CLASSES}) == len(CLASSES)


def test_nothing_in_the_schema_is_left_open() -> None:
    """A value that may be anything would be refused nowhere."""

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
