import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from rollout.definition import check_definition
from rollout.seen import CommandReport
from stacks import reference
from stacks.definition import Header, Platform
from stacks.images_lock import ImagesLock
from stacks.load import load, parse
from stacks.problems import DefinitionError
from stacks.reference.page import keys
from stacks.validate import read_definition, validate
from tests.cases import GONE
from tests.stacks.definition.examples import edit

EXAMPLE = reference.ROOT / "stacks/inference.yaml"
SCHEMA = reference.definition_schema()
PAGE = reference.page()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TREE: dict[str, Any] = load(EXAMPLE).tree
PATH = tuple[str | int, ...]


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for key in keys(model):
        for below in key.models:
            yield from models(below)


MODELS = list(dict.fromkeys([*models(Platform), *models(Header)]))


def edited(path: PATH, value: Any) -> dict[str, Any]:
    """The reference definition with another value at a path, whose last step may be new (a list's end, too)."""
    tree = copy.deepcopy(TREE)
    edit(tree, [*map(str, path)], value)
    return tree


def checks(tree: dict[str, Any]) -> bool:
    try:
        validate(parse(yaml.safe_dump(tree, sort_keys=False), "test.yaml"), ImagesLock())
    except DefinitionError:
        return False
    return True


# ---- both files ----


def test_the_generated_files_are_those_of_the_model() -> None:
    assert not reference.stale(), "run `make docs`"


def test_writing_changes_only_stale_files(tmp_path: Path) -> None:
    assert reference.write(tmp_path) == [reference.PAGE, reference.SCHEMA, reference.GUARDRAILS, reference.METRICS]
    (tmp_path / reference.SCHEMA).write_text("{}")
    assert [*reference.stale(tmp_path)] == reference.write(tmp_path) == [reference.SCHEMA]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_part_and_every_key_is_described(model: type[BaseModel]) -> None:
    assert model.__doc__
    assert model.__doc__ != BaseModel.__doc__
    # The docstring of its class describes a kind (or mode, or cloud).
    silent = [key.name for key in keys(model) if not key.description]
    assert set(silent) <= {"kind", "mode", "cloud", "engine"}


# ---- the schema ----


def test_the_schema_is_one_whose_every_value_is_described_and_whose_every_part_is_used() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    used = set(re.findall(r'"#/\$defs/(\w+)"', reference.files()[reference.SCHEMA]))
    assert used == set(SCHEMA["$defs"])
    for name, part in [("", SCHEMA), *SCHEMA["$defs"].items()]:
        for key, value in part["properties"].items():
            assert value.get("description"), f"{name}.{key}"
            if "default" in value:
                schema = jsonschema.Draft202012Validator({**value, "$defs": SCHEMA["$defs"]})
                assert schema.is_valid(value["default"]), f"{name}.{key}"


def test_the_reference_definition_is_valid_and_names_the_schema_in_its_first_line() -> None:
    assert [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(TREE)] == []
    first = EXAMPLE.read_text(encoding="utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named
    assert (EXAMPLE.parent / named[1]).resolve() == reference.ROOT / reference.SCHEMA


EFS = {"name": "more", "kind": "efs", "fileSystemId": "fs-0a1b2c3d4e5f60009"}
DEV = ("environments", 0)
EAST = ("dataPlanes", 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*DEV, "name"), "Dev"),
        ((*DEV, "proxy", "replica"), 1),
        ((*DEV, "servers"), [{"pools": []}]),
        ((*DEV, "servers"), [{"name": "ondemand", "pools": [{"replicas": 2}]}]),
        ((*DEV, "servers"), [{"name": "ondemand", "remove": "yes"}]),
        ((*DEV, "datasets"), [{"name": "models", "kind": "efs", "claimName": "x"}]),
        ((*DEV, "models"), [{"name": "churn", "versions": [{"version": 1}]}]),
        ((*DEV, "proxy", "exposure"), {"kind": "ingress", "gateway": "x"}),
        ((*EAST, "environments"), []),
        ((*EAST, "namespace"), "x"),
        ((*EAST, "gpus", 0, "product"), GONE),
        ((*EAST, "gpus", 0, "mig", "slices"), {"1g.10gb": 8}),
    ],
)
def test_mistakes_of_overlays_are_refused_by_the_schema_and_by_make_check(path: PATH, value: Any) -> None:
    tree = edited(path, value)
    assert not VALIDATOR.is_valid(tree)
    assert not checks(tree)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("pullSecrets",), None),
        (("datasets", 1), {**EFS, "domino": None, "writers": []}),
        (("servers", 0, "pools", 0, "autoscaling"), None),
        (("servers", 0, "triton", "environment"), {"LOG": "1", "OLD": None}),
        ((*DEV, "models"), [{"name": "churn", "remove": True}]),
        ((*DEV, "models"), [{"name": "fraud-score", "versions": None, "alias": "champion"}]),
        ((*DEV, "servers"), [{"name": "preload", "triton": {"exitTimeoutSeconds": 9, "environment": {"LOG": None}}}]),
        ((*DEV, "servers"), [{"name": "preload", "pools": [{"name": "main", "placement": {"product": None}}]}]),
        ((*DEV, "datasets"), [{"name": "models", "kind": "claim", "claimName": "models"}]),
        ((*DEV, "proxy", "exposure"), {"kind": "ingress", "host": "dev.example.com"}),
        ((*DEV, "monitoring"), None),
        ((*EAST, "proxy"), {"exposure": {"path": "/inference"}, "autoscaling": {"max": 20}}),
    ],
)
def test_the_schema_accepts_every_definition_that_check_accepts(path: PATH, value: Any) -> None:
    tree = edited(path, value)
    assert checks(tree)
    assert [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(tree)] == []


# ---- the page ----


def test_every_anchor_is_unique() -> None:
    targets = re.findall(r'<a id="([^"]+)"></a>', PAGE)
    assert len(targets) == len(set(targets))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_page_has_every_key(model: type[BaseModel]) -> None:
    assert [key.name for key in keys(model) if not re.search(rf"[`.[]{key.name}[`:\]]", PAGE)] == []


@pytest.mark.parametrize(("example", "stacks"), [("small", 1), ("shared", 3)])
def test_the_page_links_to_complete_definitions_that_can_be_used(example: str, stacks: int) -> None:
    file = reference.ROOT / f"stacks/reference/{example}.yaml"
    assert f"(../{file.relative_to(reference.ROOT)})" in PAGE
    VALIDATOR.validate(load(file).tree)
    check_definition(file, CommandReport("check", str(file)))
    found = read_definition(file)
    assert len(found.stacks) == stacks
    assert not found.advisories
