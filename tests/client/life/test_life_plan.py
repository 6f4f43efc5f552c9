from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidegate.errors import UsageError
from tidegate.life.plan import History, make_plan
from tidegate.life.target import Target, targets
from tidegate.publishing import Repository
from tidegate.registry.manifest import manifest_of
from tidegate.triton.publishing.config import config_differences, read_published
from tidegate_contracts.routing import VersionShare

from tests.client.triton.publishing.opening import open_repository

from .test_life_target import MODEL, dataset, known, plane

CONFIG = 'backend: "python"\nmax_batch_size: 4\n'


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    (tmp_path / "dataset" / "models").mkdir(parents=True)
    made = open_repository(tmp_path / "dataset" / "models")
    with made.lock(MODEL, "test"):
        yield made


def target(**model: Any) -> Target:
    return targets(known(plane("east", dataset("a"), **model))[0], MODEL)[0]


def had(*versions: int) -> History:
    return History(versions[-1] if versions else None, frozenset(versions))


def bring(
    repository: Repository, where: Target, number: int, past: History, *, half: bool = False, config: str = CONFIG
) -> None:
    """Publish a version by its plan, or half of it: everything except the switch."""
    plan = make_plan(where, repository, number, config, past)
    staged = repository.staging(MODEL, number)
    (staged / "1").mkdir(exist_ok=True)
    (staged / "1" / "model.py").write_text(f"# {number}\n")
    (staged / "config.pbtxt").write_text(config)
    repository.publish(MODEL, number, staged, manifest_of(staged, MODEL), plan.first)
    if not half:
        repository.write_config(MODEL, plan.last)


Content = tuple[tuple[int, ...], dict[str, int]]


def content_of(text: str | None) -> Content:
    assert text is not None
    read = read_published(text)
    return read.served, read.aliases


C = "champion"
Given = tuple[str | None, list[int], tuple[int, ...], int]
"""The alias, the published versions, those of the records, and the next one."""
Planned = tuple[int | None, bool, Content, Content]
"""The old version, whether the new one is fresh, and the versions in both configurations."""


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        ((C, [], (), 3), (None, True, ((3,), {}), ((3,), {C: 3}))),
        ((C, [1, 2], (1, 2), 5), (2, True, ((2, 5), {C: 2}), ((2, 5), {C: 5}))),
        ((C, [1, 2], (1, 2), 1), (2, False, ((1, 2), {C: 2}), ((1, 2), {C: 1}))),
        ((C, [1, 2], (1, 2), 2), (2, False, ((1, 2), {C: 2}), ((1, 2), {C: 2}))),
        ((C, [1, 2], (1,), 2), (2, True, ((1, 2), {C: 2}), ((1, 2), {C: 2}))),
        ((None, [1, 2], (1, 2), 3), (2, True, ((2, 3), {}), ((3,), {}))),
        ((None, [1, 2], (1, 2), 1), (2, True, ((1, 2), {}), ((1,), {}))),
        ((None, [1, 2], (1, 2), 2), (2, False, ((2,), {}), ((2,), {}))),
        ((None, [1, 2], (1,), 3), (2, True, ((2, 3), {}), ((3,), {}))),
    ],
    ids=["new", "alias", "back", "called", "killed", "newest", "newest-back", "newest-called", "newest-killed"],
)
def test_old_and_new_serve_until_the_calls_move(repository: Repository, given: Given, planned: Planned) -> None:
    alias, came, recorded, number = given
    where = target(alias=alias)
    for each in came:
        bring(repository, where, each, had(*range(1, each)))
    plan = make_plan(where, repository, number, CONFIG, had(*recorded))
    assert (plan.old, plan.fresh, content_of(plan.first), content_of(plan.last)) == planned
    if recorded == (1, 2) or number != plan.old:
        assert plan.before == plan.now
    if number == plan.old:
        assert plan.last == plan.now


def test_triton_loads_no_version_twice_if_the_newest_is_called(repository: Repository) -> None:
    newest, alias = target(), target(alias="champion")
    bring(repository, newest, 1, had())
    plan = make_plan(newest, repository, 2, CONFIG, had(1))
    assert plan.before is not None
    for one, other in ((plan.before, plan.first), (plan.first, plan.last)):
        assert all(each.startswith("version_policy") for each in config_differences(one, other))
    assert plan.peak == 2
    assert make_plan(alias, repository, 2, CONFIG, had(1)).peak == 4
    changed = make_plan(newest, repository, 2, 'backend: "python"\nmax_batch_size: 8\n', had(1))
    assert changed.peak == 3


def test_versions_in_the_definition_stay(repository: Repository) -> None:
    shares = (VersionShare(version=1, weight=80), VersionShare(version=2, weight=20))
    where = target(versions=shares)
    bring(repository, where, 1, had())
    bring(repository, where, 2, had(1))
    bring(repository, where, 3, had(1, 2))
    assert content_of(make_plan(where, repository, 4, CONFIG, had(1, 2, 3)).last) == ((1, 2, 3, 4), {})


def test_an_alias_that_no_definition_has_goes_with_its_version(repository: Repository) -> None:
    bring(repository, target(alias="former"), 1, had())
    bring(repository, target(alias="champion"), 2, had(1))
    bring(repository, target(alias="champion"), 3, had(1, 2))
    assert content_of(repository.config(MODEL)) == ((2, 3), {"champion": 3})


@pytest.mark.parametrize("alias", ["champion", None])
def test_a_rollback_returns_to_the_state_before_the_killed_run(repository: Repository, alias: str | None) -> None:
    where = target(alias=alias)
    bring(repository, where, 1, had())
    clean = repository.config(MODEL)
    bring(repository, where, 2, had(1), half=True, config='backend: "python"\nmax_batch_size: 8\n')
    for number in (2, 3):  # the same version again, or another one
        again = make_plan(where, repository, number, CONFIG, had(1))
        assert (again.old, again.fresh) == (1, True)
        assert content_of(again.before) == ((1,), {} if alias is None else {alias: 1})
        assert again.before == clean


@pytest.mark.parametrize("alias", ["champion", None])
def test_after_a_cut_over_one_goes_back_by_the_records(repository: Repository, alias: str | None) -> None:
    where = target(alias=alias)
    bring(repository, where, 1, had())
    clean = repository.config(MODEL)
    bring(repository, where, 2, had(1))
    again = make_plan(where, repository, 2, CONFIG, had(1))
    assert again.last == again.now
    assert again.before == clean
    first = make_plan(where, repository, 2, CONFIG, had())
    named = History(1, frozenset({1}), named=2)  # the registry's alias moves last
    seen = make_plan(where, repository, 2, CONFIG, named)
    assert (first.before, seen.before) == (None, seen.now)
    assert seen.put_back() == "the served versions are unchanged"
    assert again.put_back() == "on servers where version 2 may have answered calls, the earlier version is served again"
    assert repository.config(MODEL) == clean
    assert first.put_back().startswith("on servers without an earlier version, it can answer until")


def test_an_alias_in_a_withdrawn_configuration_is_ignored(repository: Repository) -> None:
    where = target(alias="champion")
    bring(repository, where, 1, had())
    repository.withdraw(MODEL)
    plan = make_plan(where, repository, 2, CONFIG, had())
    assert (plan.old, content_of(plan.first), content_of(plan.last)) == (None, ((2,), {}), ((2,), {"champion": 2}))


def test_a_model_that_tidegate_did_not_publish_stays_unchanged(repository: Repository, tmp_path: Path) -> None:
    folder = tmp_path / "dataset" / "models" / MODEL
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("")
    with pytest.raises(UsageError, match="tidegate did not publish"):
        make_plan(target(), repository, 2, CONFIG, had())
    (folder / "config.pbtxt").write_text(CONFIG)
    with pytest.raises(UsageError, match="tidegate did not publish"):
        make_plan(target(), repository, 2, CONFIG, had())
