import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stacks.problems import Position, Problem
from tests.cases import GONE
from tests.counts import examples
from tests.stacks.definition.examples import BASE, assert_complete, edited_at, problems, stands_at, valid

# ---- what is good ----


def test_stacks_come_in_the_order_of_the_rollout() -> None:
    gpus = yaml.safe_load(BASE)["dataPlanes"][1]["gpus"]
    planes = [
        {"name": name, "environments": ["dev", "prod"], "wave": wave, "gpus": gpus}
        for name, wave in (("last", 3), ("first", 1), ("second", 2), ("third", 2))
    ]
    assert [stack.name for stack in valid(edited_at({"dataPlanes": planes})).stacks] == [
        f"{environment}-{plane}" for plane in ("first", "second", "third", "last") for environment in ("dev", "prod")
    ]


def test_a_stack_knows_its_namespace_and_the_models_of_a_pool() -> None:
    dev, prod = valid(edited_at({"environments/prod/namespace": "inference"})).stacks
    assert (dev.namespace, prod.namespace) == ("tidegate-dev", "inference")
    (server,) = dev.platform.servers
    assert [[model.name for model in dev.models_of(server, pool)] for pool in server.pools] == [["churn"], ["ocr"]]
    only = valid(edited_at({"models/churn/pool": GONE, "models/ocr": GONE, "servers/main/pools/cold": GONE})).stacks[0]
    (server,) = only.platform.servers
    assert [model.name for model in only.models_of(server, server.pools[0])] == ["churn"]


# ---- what is no definition at all ----


def test_all_missing_keys_of_an_empty_definition_are_reported_together() -> None:
    assert [problem.what for problem in problems("{}")] == [
        f'"{key}" is missing' for key in ("environments", "dataPlanes", "images", "servers")
    ]


@examples(60)
@given(st.text(max_size=60), st.integers(0, len(BASE)), st.integers(0, 40))
def test_any_content_of_a_definition_leads_only_to_problems(insert: str, at: int, gone: int) -> None:
    for problem in problems(BASE[:at] + insert + BASE[at + gone :]):
        assert len(str(problem)) < 5_000


# ---- all mistakes at once ----


def assert_places(edits: dict[str, Any], *places: str) -> list[Problem]:
    """Check that a problem is at each of these places, and return the messages."""
    text = edited_at(edits)
    found = problems(text)
    for at in places:
        assert any(stands_at(problem, text, at) for problem in found), f"nothing at {at!r}:\n{[*map(str, found)]}"
    return found


def test_every_mistake_of_a_file_is_reported_in_one_run_in_its_order() -> None:
    found = assert_places(
        {
            "images/proxy/tag": 26.08,
            "servers/main/pools/cold/replicas": -1,
            "proxy/replica": 2,
            "models/churn/versions": [{"version": 1, "weight": 90}],
            "network/callers/ingress/cidr": "10.0.0.1/8",
            "environments/dev/proxy": {"concurency": 5},
            "environments/dev/namespac": "x",
            "environments/prod/datasets/models/path": "x",
            "dataPlanes/lab/gpus/0/perNode": 99,
            "dataPlanes/lab/proxy": {"logLevel": "loud"},
            "wave": 1,
        },
        "tag: »26.08", "replicas: »-1", "»replica: 2", "- »name: churn", "cidr: »10.0.0.1/8", "»concurency: 5",
        "»namespac: x", "path: »x", "perNode: »99", "logLevel: »loud", "»wave: 1",
    )  # fmt: skip
    lines = [problem.where.line for problem in found if isinstance(problem.where, Position)]
    assert lines == sorted(lines)
    for problem in found:
        assert_complete(problem)


@pytest.mark.parametrize(
    ("edits", "at"),
    [
        ({"environments/dev/name": "Dev"}, "name: »Dev"),
        ({"dataPlanes/lab/gpus/0/nodes": 0}, "nodes: »0"),
        ({"dataPlanes/lab/environments/1": "nope"}, "- »nope"),
        ({"unknown": 1}, "»unknown: 1"),
        ({"environments/staging": {"proxy": {"concurrency": 0}}}, "concurrency: »0"),  # it lives nowhere
    ],
)  # fmt: skip
def test_a_mistake_in_the_header_hides_none_in_the_rest(edits: dict[str, Any], at: str) -> None:
    assert_places({**edits, "proxy/replicas": 0}, at, "replicas: »0")


def test_a_mistake_in_one_environment_hides_no_broken_rule_of_another() -> None:
    models = [{"name": "churn", "server": "nope"}]
    edits = {"environments/dev/proxy": {"replicas": 0}, "environments/prod/models": models}
    assert_places(edits, "replicas: »0", "server: »nope")


@pytest.mark.parametrize(
    ("edits", "at"),
    [
        ({"environments/prod/proxy": {"acces": None}}, "»acces:"),
        ({"environments/prod/promotion": {"form": None}}, "»form:"),
        ({"servers/main/pools/cold/replica": None}, "»replica:"),
        ({"dataPlanes/lab/gpus/0/perNodes": None}, "»perNodes:"),
    ],
)
def test_a_mistyped_key_that_is_to_take_something_away_is_refused(edits: dict[str, Any], at: str) -> None:
    """A mistyped key with null removes nothing, so an inherited egress rule would stay open."""
    (problem,) = assert_places(edits, at)
    assert "unknown key" in problem.what
    assert "Did you mean" in problem.do


def test_a_rule_that_a_common_part_breaks_in_some_stacks_names_them() -> None:
    """There it reads as if nothing were wrong."""
    everywhere = [*map(str, problems(edited_at({"models/churn/server": "nope"})))]
    assert everywhere
    assert not any("Only in" in each for each in everywhere)
    in_prod = problems(edited_at({"environments/prod/datasets": [{"name": "models", "remove": True}]}))
    (unknown,) = [problem for problem in in_prod if "reads an unknown dataset" in problem.what]
    assert unknown.why == "Only in prod-east."


def test_a_mistake_that_several_aliases_share_is_reported_once() -> None:
    text = edited_at({"dataPlanes/lab/gpus": "ANCHOR", "dataPlanes/east": {"environments": ["dev"], "gpus": "ALIAS"}})
    gpus = "&gpus [{product: NVIDIA-A100-SXM4-80GB, nodes: 1, perNode: 1, mig: {slices: {3g.40gb: 3}}}]"
    found = problems(text.replace("ANCHOR", gpus).replace("ALIAS", "*gpus"))
    assert len([problem for problem in found if "do not fit" in problem.what]) == 1


# ---- determinism and speed ----


def test_the_same_text_gives_the_same_definition_in_yaml_and_in_json() -> None:
    assert valid(BASE) == valid(BASE) == valid(json.dumps(yaml.safe_load(BASE)))
