"""Names are unique where Kubernetes wants them unique, and short enough."""

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
    problem = assert_refused(text, "name: »churn", "stands twice")
    assert "/v2/models/churn" in str(problem)


def test_the_same_name_in_two_lists_is_no_clash() -> None:
    apart = {**server("warm", "cold"), "repository": {"dataset": "models", "path": "apart"}}
    changes = {"servers/main/repository/path": "main", "servers/other": apart, "dataPlanes/lab/name": "dev"}
    assert problems(edited_at(changes)) == []


@pytest.mark.parametrize("path", TWICE)
def test_a_name_that_stands_twice_in_a_list_is_said_at_the_second(path: str) -> None:
    """Also where an overlay touches the list, as prod's does `datasets`, and in an overlay itself."""
    text = edited_at({f"{path}/{90 + number}": {"name": "twice", **item} for number, item in enumerate(TWICE[path])})
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "name: twice" in line]
    found = [problem for problem in problems(text) if "twice" in problem.what.partition("stands twice")[0]]
    said = "\n".join(map(str, problems(text)))
    assert [problem.where.line for problem in found if isinstance(problem.where, Position)] == lines[1:] != [], said
