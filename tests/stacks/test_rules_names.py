from typing import Any

import pytest

from stacks.problems import Position
from tests.stacks.definition.examples import assert_refused, edited_at, problems

PRELOAD = {"mode": "preload"}


def server(*pools: str) -> dict[str, Any]:
    return {"repository": {"dataset": "models"}, "pools": [{"name": pool, "loading": PRELOAD} for pool in pools]}


TWICE: dict[str, list[dict[str, Any]]] = {
    "datasets": [{"kind": "claim", "claimName": claim} for claim in "ab"],
    "servers/main/pools": [{"loading": PRELOAD}] * 2,
    "environments": [{}, {}],
    "environments/prod/models": [{"footprint": "1Gi"}] * 2,
}


def test_two_models_of_one_name_would_share_their_api_path() -> None:
    text = edited_at({"models/90": {"name": "churn", "server": "main", "pool": "cold"}})
    problem = assert_refused(text, "name: »churn", 'models has the name "churn" twice')
    assert "/v2/models/churn" in str(problem)


def test_two_lists_can_have_the_same_name() -> None:
    apart = {**server("warm", "cold"), "repository": {"dataset": "models", "path": "apart"}}
    changes = {"servers/main/repository/path": "main", "servers/other": apart, "dataPlanes/lab/name": "dev"}
    assert problems(edited_at(changes)) == []


@pytest.mark.parametrize("path", TWICE)
def test_a_repeated_name_in_a_list_is_reported_at_the_second_item(path: str) -> None:
    """This includes lists that an overlay changes, such as prod's `datasets`, and lists of an overlay."""
    text = edited_at({f"{path}/{90 + number}": {"name": "twice", **item} for number, item in enumerate(TWICE[path])})
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "name: twice" in line]
    found = [problem for problem in problems(text) if 'the name "twice" twice' in problem.what]
    messages = "\n".join(map(str, problems(text)))
    assert [problem.where.line for problem in found if isinstance(problem.where, Position)] == lines[1:] != [], messages
