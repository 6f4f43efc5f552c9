"""Our own definitions fulfil the guardrails, no definition makes one crash, and every command enforces them."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.app import app
from policies.guardrails import check, check_all
from rollout.guardrails import findings
from rollout.render import render
from stacks.images_lock import lock_text
from stacks.validate import read_definition
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
    "gpu-slices-stay-under-their-ceiling",
    "issuers-are-asked-over-https",
    "production-shares-nothing-that-others-may-write",
    "the-cost-a-month-stays-within-its-budget",
    "the-proxy-is-exposed-to-named-callers",
    "waivers-have-not-expired",
    "waivers-match-something",
}
"""What a definition decides; all else is fixed by the components."""


def broken(objects: dict[str, stacks.Objects]) -> set[tuple[str, str]]:
    """Which rules are broken, and how severe that is."""
    return {(each.rule, each.severity) for found in check_all(objects, TODAY).values() for each in found}


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_our_definitions_break_no_mandatory_guardrail(path: Path) -> None:
    found = broken(stacks.rendered(path))
    assert {rule for rule, _ in found} <= DECIDED
    assert {rule for rule, severity in found if severity == "mandatory"} == set()
    if path == REFERENCE:  # it is not even worth an advisory once its images are pinned
        assert found == set()


@settings(parent=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_what_any_valid_definition_declares_breaks_only_what_the_definition_decides(tree: Tree) -> None:
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
    """The definition of object stores, whose production has no digests; its callers may see what an advisory is."""
    text = (stacks.ROOT / "tests/definitions/object-store.yaml").read_text()
    text = text.replace("servers: [aws, gcp, azure, own]", 'servers: ["*"]')
    lines = [line for line in text.splitlines() if not line.startswith("guardrails:")]
    assert len(lines) == len(text.splitlines()) - 1
    path = tmp_path / "production.yaml"
    path.write_text("\n".join([*lines, guardrails]))
    return path


def test_up_writes_nothing_where_a_mandatory_guardrail_is_broken_and_names_every_finding(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = f"guardrails: {{severities: {{{WILDCARD}: advisory}}}}"
    ended = CliRunner().invoke(app, ["render", str(production(tmp_path, said)), "--out", str(out)])
    assert ended.exit_code == 1
    assert ended.stderr.count("has no digest") == 8
    assert f"{WILDCARD}, advisory here" in ended.stderr
    assert "8 mandatory findings, 1 advisory; nothing was written." in ended.stderr
    assert not out.exists()


# ---- one stack is judged among all of its definition ----

SHARING = """\
images:
  - {name: triton, repository: registry.test/triton, tag: "1"}
  - {name: proxy, repository: registry.test/proxy, tag: "1"}
  - {name: eviction-policy, repository: registry.test/eviction-policy, tag: "1"}
datasets:
  - {name: models, kind: efs, fileSystemId: fs-00000001}
servers:
  - name: small
    repository: {dataset: models}
    pools: [{name: main, loading: {mode: on-demand}, replicas: 1}]
proxy: {auth: {apiKeys: {secret: keys}}, access: [{name: ci, principals: [ci], servers: [small]}]}
models: [{name: one, server: small}]
network: {callers: [{name: ci, namespaceLabels: {kubernetes.io/metadata.name: ci}}]}
guardrails: {severities: {images-are-pinned-by-digest: advisory}}
environments:
  - name: dev # writes to the same file system, by a driver's name that the definition's own rule does not look into
    datasets:
      - {name: drafts, kind: csi, driver: efs.csi.aws.com, volumeHandle: fs-00000001, writers: [data-scientists]}
    servers: [{name: small, repository: {dataset: drafts}}]
  - name: trial
    datasets: [{name: models, fileSystemId: fs-00000002, writers: [data-scientists]}]
  - {name: prod, production: true}
dataPlanes:
  - {name: lab, environments: [dev, trial]}
  - {name: east, environments: [prod]}
  - {name: west, environments: [prod]}
"""
SHARED = "models shares its files with drafts of dev-lab, which others may write"


@pytest.fixture
def sharing(tmp_path: Path) -> Path:
    """A definition whose production serves what dev may write."""
    path = tmp_path / "sharing.yaml"
    path.write_text(SHARING)
    return path


def pin(path: Path) -> None:
    """Write a lock with a digest for every image of a definition: no cluster takes one without."""
    path.with_name("images.lock").write_text(lock_text(stacks.pinned(read_definition(path)).images))


@pytest.mark.parametrize(
    "command",
    [
        ["render", "--stack", "prod-east"],
        ["rollout", "--environment", "prod", "--dry-run"],
    ],
    ids=["render", "rollout"],
)
def test_production_alone_is_judged_among_the_stacks_that_are_not_asked_for(
    sharing: Path, tmp_path: Path, command: list[str]
) -> None:
    out = tmp_path / "out"
    name, *options = command
    folder = ["--journals" if name == "rollout" else "--out", str(out)]
    pin(sharing)
    ended = CliRunner().invoke(app, [name, str(sharing), *options, *folder])
    assert ended.exit_code == 1, ended.stdout
    stacks_said = "prod-east, prod-west" if name == "rollout" else "prod-east"
    assert f"{stacks_said}: PersistentVolume/tidegate-prod-models in tidegate-prod: {SHARED}" in ended.stderr


def test_what_a_stack_breaks_in_another_stops_it_too_and_is_said_of_the_other(sharing: Path, tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["render", str(sharing), "--stack", "dev-lab", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 1, ended.stdout
    assert f"prod-east, prod-west: PersistentVolume/tidegate-prod-models in tidegate-prod: {SHARED}" in ended.stderr
    assert "1 mandatory finding, 3 advisories; nothing was written." in ended.stderr


def test_what_is_wrong_in_others_anyway_stops_no_stack(sharing: Path, tmp_path: Path) -> None:
    definition = read_definition(sharing)
    (trial,) = (stack for stack in definition.stacks if stack.name == "trial-lab")
    rendering = [render(trial, definition)]
    assert set(findings(rendering, definition)) == {"trial-lab"}
    ended = CliRunner().invoke(app, ["render", str(sharing), "--stack", "trial-lab", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 0, ended.stderr


def test_a_waiver_is_not_called_idle_because_the_other_stack_was_not_asked_for(sharing: Path) -> None:
    waiver = (
        "{name: w, rule: production-shares-nothing-that-others-may-write, owner: me, reason: so, until: 2999-01-01}"
    )
    text = sharing.read_text()
    sharing.write_text(text.replace("advisory}}", f"advisory}}, waivers: [{waiver}]}}", 1))
    definition = read_definition(sharing)
    for name in ("prod-east", "dev-lab"):
        rendering = [render(stack, definition) for stack in definition.stacks if stack.name == name]
        found = [
            each for each in findings(rendering, definition)["prod-east"] if each.rule != "images-are-pinned-by-digest"
        ]
        assert [each.severity for each in found] == ["waived"], name
