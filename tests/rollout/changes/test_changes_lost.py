import json
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollout.changes.names import hints
from rollout.changes.page import page
from rollout.changes.permissions import _Right, permission_change
from rollout.changes.stack_change import stack_change, verdict
from rollout.preview import terminal_sections
from tests.cases import read_cases
from tests.counts import examples
from tests.stacks.definition.examples import edited_at

from .test_changes_weaker import Object, gained, objects_of, rule, tables

LOST = read_cases(Path(__file__).with_name("lost.yaml"))
WIDER = read_cases(Path(__file__).with_name("wider.yaml"))


def both(case: Any) -> tuple[list[Object], list[Object]]:
    before, after = (objects_of(edited_at(case.get(key, {}))) for key in ("before", "after"))
    return before, after


@pytest.mark.parametrize("name", LOST)
def test_losses_of_callers_and_teams_are_shown(name: str) -> None:
    before, after = both(LOST[name])
    change = permission_change(before, after)
    assert len(change.lost) == len(LOST[name]["lost"]), change.lost
    for line, start in zip(change.lost, LOST[name]["lost"], strict=True):
        assert line.startswith(start)
    wanted = LOST[name].get("gained", [])
    assert all(line.startswith(start) for line, start in zip(gained(change), wanted, strict=True)), gained(change)


def turned(line: str) -> str:
    """Return the line that the opposite change shows instead of a line."""
    for one, other in (("newly ", "no longer "), ("no longer ", "newly ")):
        if line.startswith(one):
            return other + line.removeprefix(one)
    words, _, amounts = line.rpartition(": ")
    before, _, after = amounts.partition(" → ")
    return f"{words}: {after} → {before}"


@pytest.mark.parametrize("name", [*LOST, *WIDER])
def test_the_way_back_shows_each_line_turned_round(name: str) -> None:
    before, after = both((LOST | WIDER)[name])
    lines, back = (
        {
            line
            for line in (*change.weaker, *change.lost, *change.stricter)
            if " infer: " not in line and " inspect: " not in line
        }
        for change in (permission_change(before, after), permission_change(after, before))
    )
    assert {turned(line) for line in lines} == back


GROUPS, SERVERS, MODELS = ("a", "ab"), ("s", "t"), ("one", "two")
GLOBS = ("*", "a*", "s", "t", "o*", "one", "two", "a", "ab", "x")
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "groups": st.lists(st.sampled_from(GLOBS), min_size=1, max_size=2),
            "servers": st.lists(st.sampled_from(GLOBS), min_size=1, max_size=2),
            "models": st.lists(st.sampled_from(GLOBS), min_size=1, max_size=2),
            "actions": st.just(["infer"]),
        }
    ),
    max_size=3,
)


def lets_in(rules: list[Object]) -> set[tuple[str, ...]]:
    return {
        call
        for call in product(GROUPS, SERVERS, MODELS)
        for rule in rules
        if all(
            any(fnmatchcase(name, glob) for glob in rule[key])
            for name, key in zip(call, ("groups", "servers", "models"), strict=True)
        )
    }


@examples(300)
@given(RULES, RULES)
def test_a_call_that_was_let_in_and_is_not_any_more_never_goes_unnoticed(old: list[Object], new: list[Object]) -> None:
    before, after = tables(old), tables(new)
    for item in (*before, *after):
        models = [{"server": server, "pool": "p", "name": name} for server, name in product(SERVERS, MODELS)]
        item["data"]["routing.json"] = json.dumps({"servers": [], "models": models})
    change = permission_change(before, after)
    assert change.lost or lets_in(old) <= lets_in(new)
    assert change.grants or lets_in(new) <= lets_in(old)


def test_rights_to_one_model_are_compared_with_rights_to_the_same_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A team can have hundreds of models: comparing each right with all others took minutes."""
    compared, covers = [0], _Right.covers

    def counted(one: _Right, other: _Right) -> bool:
        compared[0] += 1
        return covers(one, other)

    monkeypatch.setattr(_Right, "covers", counted)
    models = [f"m{number}" for number in range(100)]
    before, after = tables([rule("a", "b", "c")], *models), tables([rule("a", "b")], *models)
    assert not any(permission_change(before, before))
    assert [each.partition(" infer: ")[0] for each in permission_change(before, after).lost] == [
        "no longer lets group c"
    ]
    assert compared[0] < 10 * len(models)


def test_losses_are_in_the_verdict_on_page_and_screen() -> None:
    before, after = both(LOST["a rate limit cut to a hundredth"])
    change = stack_change("dev-lab", before, after)
    line = "lets one caller send a model requests a minute: 1000 → 10"
    assert "2 things LOST" in verdict([change])
    assert "Lost by callers and teams" in page([change], "A preview")
    assert page([change], "A preview").startswith("**⚠️ ")
    assert line in terminal_sections([change]).plain


def notices(before: list[Object], after: list[Object]) -> dict[tuple[str, str], Any]:
    change = stack_change("dev-lab", before, after)
    return {(notice.kind, notice.name): notice for notice in change.notices}


def edited(text: str, edit: Any) -> list[Object]:
    tree = yaml.safe_load(text)
    edit(tree)
    return objects_of(yaml.safe_dump(tree))


def on_demand(capacity: str) -> list[Object]:
    pool = {"loading": {"mode": "on-demand", "capacity": capacity}, "placement": {"kind": "cpu"}}

    def two_more(tree: Object) -> None:
        tree["models"] += [{"name": name, "server": "main", "pool": "third", "footprint": "1Gi"} for name in ("u", "v")]

    return edited(edited_at({"servers/main/pools/third": pool}), two_more)


def chat(version: int) -> list[Object]:
    return objects_of(
        edited_at(
            {
                "images/vllm": {"repository": "docker.io/vllm/vllm-openai", "tag": "v0.20.1"},
                "servers/chat": {
                    "kind": "openai",
                    "image": "vllm",
                    "repository": {"dataset": "models", "path": "chat"},
                    "openai": {"engine": "vllm"},
                    "pools": [{"name": "a", "loading": {"mode": "preload"}}],
                },
                "models/llama": {"server": "chat", "pool": "a", "versions": [{"version": version, "weight": 100}]},
            }
        )
    )


def as_it_is(change: Any = lambda _: None) -> list[Object]:
    return edited(edited_at({}), change)


def shift(tree: Object) -> None:
    tree["models"][0]["versions"] = [{"version": 9, "weight": 100}]


def move(tree: Object) -> None:
    tree["servers"][0]["repository"]["path"] = "elsewhere"


def renew(tree: Object) -> None:
    tree["images"][0]["tag"] = "26.09-py3"


def rename(tree: Object) -> None:
    tree["servers"][0]["name"] = "vision"
    for model in tree["models"]:
        model["server"] = "vision" if model["server"] == "main" else model["server"]


@pytest.mark.parametrize(
    ("before", "after", "kind", "grave", "parts"),
    [
        (as_it_is, lambda: as_it_is(shift), "model", False, ["100 % to version 9"]),
        (as_it_is, lambda: as_it_is(move), "server", True, ["elsewhere"]),
        (as_it_is, lambda: as_it_is(renew), "StatefulSet", False, ["TensorRT plans", "26.08-py3 → "]),
        (as_it_is, lambda: as_it_is(rename), "server", False, ["formerly: [main]"]),
        (lambda: on_demand("4Gi"), lambda: on_demand("1Gi"), "pool", True, ["Before: "]),
        (lambda: on_demand("1Gi"), lambda: on_demand("4Gi"), "pool", False, None),
        (lambda: chat(1), lambda: chat(2), "pool", True, ["llama version 2"]),
    ],
    ids=["shifted weights", "a moved repository", "another release", "a new name",
         "models that no longer fit together", "and that fit again", "a new version of a language model"],
)  # fmt: skip
def test_the_effect_of_a_change_on_callers_is_shown(
    before: Any, after: Any, kind: str, grave: bool, parts: list[str] | None
) -> None:
    found = [one for (of, _), one in notices(before(), after()).items() if of == kind]
    assert bool(found) == (parts is not None)
    assert any(one.grave == grave and all(part in one.what for part in parts or ()) for one in found) == bool(found)


def inventory(*cuts: tuple[int, str]) -> Object:
    gpus = [
        {"product": "NVIDIA-A100-SXM4-80GB", "nodes": nodes, "mig": {"slices": {profile: 2}}} for nodes, profile in cuts
    ]
    annotations = {"tidegate.dev/definition": json.dumps({"dataPlane": {"gpus": gpus}})}
    return {"kind": "Namespace", "metadata": {"name": "ns", "annotations": annotations}}


def cut(before: Object, after: Object) -> list[str]:
    return [one.what for (kind, _), one in notices([before], [after]).items() if kind == "nodes with"]


def test_a_layout_of_slices_that_changes_names_the_group_of_nodes_that_is_cut_again() -> None:
    two = inventory((2, "1g.10gb"), (2, "1g.10gb"))
    [line] = cut(two, inventory((2, "1g.10gb"), (3, "3g.40gb")))
    assert line.startswith("2 × 1g.10gb → 2 × 3g.40gb in gpus[1] of the data plane (3 nodes)")
    assert cut(two, inventory((2, "1g.10gb"), (5, "1g.10gb"))) == []
    assert cut(two, inventory((2, "1g.10gb"), (2, "1g.10gb"), (1, "3g.40gb"))) == []


def test_an_environment_of_another_name_hints_at_formerly() -> None:
    text = edited_at({})
    tree = yaml.safe_load(text)
    tree["environments"][0]["name"] = "trial"
    tree["dataPlanes"][0]["environments"] = ["trial"]
    before, after = objects_of(text), objects_of(yaml.safe_dump(tree))
    [hint] = hints({"dev-lab": before, "trial-lab": None}, {"dev-lab": None, "trial-lab": after})
    assert "environment trial" in hint
    assert "formerly: [dev]" in hint
    assert not [*hints({"dev-lab": before}, {"dev-lab": before})]
