import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.app import app
from policies.guardrails import check
from tests.components.test_environment import declared
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from . import stacks
from .stacks import DEFINITIONS, TODAY, everything

REFERENCE = DEFINITIONS[0]


DECIDED = {
    "access-rules-name-their-callers",
    "access-rules-name-servers-or-models",
    "calls-from-outside-are-encrypted",
    "callers-are-named",
    "destinations-are-named",
    "every-workload-has-a-budget",
    "issuers-are-asked-over-https",
    "the-proxy-is-exposed-to-named-callers",
    "waivers-have-not-expired",
    "waivers-match-something",
}
"""Guardrails that a definition can break. The components keep all others."""


def broken(objects: dict[str, stacks.Objects]) -> set[tuple[str, str]]:
    return {(each.rule, each.severity) for found in objects.values() for each in check(found, TODAY)}


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_our_definitions_break_no_mandatory_guardrail(path: Path) -> None:
    found = broken(stacks.rendered(path))
    assert {rule for rule, _ in found} <= DECIDED
    assert {rule for rule, severity in found if severity == "mandatory"} == set()
    if path == REFERENCE:  # With pinned images it has no findings.
        assert found == set()


@settings(parent=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_any_valid_environment_breaks_only_guardrails_that_its_definition_decides(tree: Tree) -> None:
    definition = read_tree(tree, pinned=True)
    found = broken({stack.name: declared(definition, stack) for stack in definition.stacks})
    assert {rule for rule, _ in found} <= DECIDED


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


SOUND = everything()
PLACES = [place for place in places(SOUND) if place]
MALFORMED: tuple[Any, ...] = (
    None, 0, -1.5, float("nan"), float("inf"), True, "", "x", [], [None], {}, {"a": [{}]}, [[1]],
)  # fmt: skip


@examples(100)
@given(st.sampled_from(PLACES), st.sampled_from(MALFORMED))
def test_no_malformed_object_makes_a_guardrail_crash(place: tuple[Any, ...], value: Any) -> None:
    objects = copy.deepcopy(SOUND)
    tree: Any = objects
    for step in place[:-1]:
        tree = tree[step]
    tree[place[-1]] = value
    text = "".join(map(str, check([item for item in objects if isinstance(item, dict)], TODAY)))
    assert isinstance(text, str)


# ---- tidegate up ----

WILDCARD = "access-rules-name-servers-or-models"


def production(tmp_path: Path, guardrails: str = "") -> Path:
    """The definition of object stores, whose production has no digests, with a wildcard for servers."""
    text = (stacks.ROOT / "tests/definitions/object-store.yaml").read_text()
    text = text.replace("servers: [aws, gcp, azure, own]", 'servers: ["*"]')
    lines = [line for line in text.splitlines() if not line.startswith("guardrails:")]
    assert len(lines) == len(text.splitlines()) - 1
    path = tmp_path / "production.yaml"
    path.write_text("\n".join([*lines, guardrails]))
    return path


def test_up_writes_nothing_if_a_mandatory_guardrail_is_broken_and_names_every_finding(tmp_path: Path) -> None:
    out = tmp_path / "out"
    guardrails = f"guardrails: {{severities: {{{WILDCARD}: advisory}}}}"
    ended = CliRunner().invoke(app, ["render", str(production(tmp_path, guardrails)), "--out", str(out)])
    assert ended.exit_code == 1
    assert ended.stderr.count("has no digest") == 8
    assert f"{WILDCARD}, advisory here" in ended.stderr
    assert "8 mandatory findings, 1 advisory" in ended.stderr
    assert not out.exists()
