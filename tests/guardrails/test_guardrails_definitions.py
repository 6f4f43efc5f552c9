"""Our own definitions fulfil the guardrails, no definition makes one crash, and `make up` holds everybody to them."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from policies.guardrails import check, check_all
from rollout.cli import app
from rollout.errors import RolloutError
from rollout.guardrails import enforce, findings
from rollout.render import render, rendered
from stacks.validate import read_definition
from tests.components.test_environment import declared
from tests.strategies import definition_trees, read_tree
from tests.strategies.definitions import Tree

from . import stacks
from .stacks import DEFINITIONS, SMALL, TODAY, at, everything, in_small, prod

REFERENCE = DEFINITIONS[0]


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_our_definitions_break_no_mandatory_guardrail(path: Path) -> None:
    found = check_all(stacks.rendered(path), TODAY)
    assert {str(each) for of_stack in found.values() for each in of_stack if each.severity == "mandatory"} == set()


def test_the_reference_is_not_even_worth_an_advisory_once_its_images_are_pinned() -> None:
    assert check_all(stacks.rendered(REFERENCE), TODAY) == {"dev-lab": [], "prod-east": [], "prod-west": []}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_what_any_valid_definition_declares_breaks_only_what_the_definition_decides(tree: Tree) -> None:
    """What the components fix is never broken: whatever is found follows from what the author of a definition wrote."""
    definition = read_tree(tree, pinned=True)
    found = check_all({stack.name: declared(definition, stack) for stack in definition.stacks}, TODAY)
    rules = {each.rule for of_stack in found.values() for each in of_stack}
    assert rules <= {
        "access-rules-name-their-callers",
        "access-rules-name-servers-or-models",
        "gpu-slices-stay-under-their-ceiling",
        "waivers-have-not-expired",
        "waivers-match-something",
    }


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


SOUND = everything()
PLACES = [place for place in places(SOUND) if place]
MALFORMED: tuple[Any, ...] = (
    None,
    0,
    -1.5,
    float("nan"),
    float("inf"),
    True,
    "",
    "x",
    [],
    [None],
    {},
    {"a": [{}]},
    [[1]],
)


@settings(deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(MALFORMED))
def test_no_malformed_object_makes_a_guardrail_crash(place: tuple[Any, ...], value: Any) -> None:
    objects = copy.deepcopy(SOUND)
    tree: Any = objects
    for step in place[:-1]:
        tree = tree[step]
    tree[place[-1]] = value
    text = "".join(map(str, check([item for item in objects if isinstance(item, dict)], TODAY)))
    assert isinstance(text, str)


# ---- make up ----


def production(tmp_path: Path, guardrails: str = "") -> Path:
    """The definition of object stores, whose production has no digests."""
    text = (stacks.ROOT / "tests/definitions/object-store.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("guardrails:")]
    assert len(lines) == len(text.splitlines()) - 1
    path = tmp_path / "production.yaml"
    path.write_text("\n".join([*lines, guardrails]))
    return path


def test_up_writes_nothing_where_a_mandatory_guardrail_is_broken_and_names_every_finding(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = CliRunner().invoke(app, ["up", str(production(tmp_path)), "--out", str(out)])
    assert ended.exit_code == 1
    assert ended.stderr.count("has no digest") == 6
    assert "access-rules-name-servers-or-models, advisory here" in ended.stderr
    assert "6 mandatory findings, 1 advisory; nothing was written." in ended.stderr
    assert not out.exists()


def test_up_says_advisories_and_waivers_and_writes(tmp_path: Path) -> None:
    said = (
        "guardrails: {severities: {images-are-pinned-by-digest: advisory}, waivers: [{name: w, owner: me, reason: so, "
        'rule: access-rules-name-servers-or-models, until: "2999-01-01"}, {name: v, owner: me, reason: so, '
        'rule: volumes-are-retained, until: "2999-01-01"}]}'
    )
    ended = CliRunner().invoke(app, ["up", str(production(tmp_path, said)), "--out", str(tmp_path / "out")])
    assert ended.exit_code == 0, ended.stderr
    assert "waived by me until 2999-01-01 (w): so" in ended.stdout
    assert "waiver v covers nothing" in ended.stdout
    assert (tmp_path / "out" / "prod-multi").is_dir()


def test_an_image_without_a_digest_is_said_once_by_the_definitions_own_advisory(tmp_path: Path) -> None:
    path = production(tmp_path, "guardrails: {severities: {images-are-pinned-by-digest: advisory}}")
    definition = read_definition(path)
    rendering = [render(definition.stacks[0], definition.lock, definition.file)]
    assert "has no digest" not in enforce(rendering)
    assert any(each.rule == "images-are-pinned-by-digest" for each in findings(rendering)["prod-multi"])


def test_a_local_cluster_takes_images_without_a_digest(tmp_path: Path) -> None:
    definition = read_definition(production(tmp_path))
    rendering = [render(definition.stacks[0], definition.lock, definition.file)]
    with pytest.raises(RolloutError, match="6 mandatory findings"):
        enforce(rendering)
    assert "no digest" not in enforce(rendering, local_cluster=True)


def test_a_local_cluster_takes_nothing_else_that_is_mandatory() -> None:
    objects = prod()
    in_small("hostNetwork", True)(objects)
    with pytest.raises(RolloutError, match="hostNetwork") as caught:
        enforce([rendered("prod-east", objects, "f.yaml")], local_cluster=True, outcome="nothing was applied")
    assert caught.value.code == 1
    assert "1 mandatory finding; nothing was applied." in str(caught.value)


def test_what_is_wrong_in_one_stack_is_said_of_that_stack() -> None:
    objects = prod()
    at("Service", SMALL, "spec/type", "NodePort")(objects)
    found = findings([rendered("east", objects, "f.yaml"), rendered("west", prod(), "f.yaml")])
    assert [each.object for each in found["east"]] == [f"Service/{SMALL}"]
    assert found["west"] == []
