"""Several repositories: a version is published to both data planes or to none, and uploads are completed."""

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path

import pytest
from tidegate.errors import IntegrityError, RefusedError, UnfinishedError, UnreachableError
from tidegate.life.plan import Plan
from tidegate.life.publish import publish_version
from tidegate.life.rules import history
from tidegate.life.undeploy import undeploy
from tidegate.publishing import steps
from tidegate.triton.publishing.config import read_published
from tidegate_contracts.environments import ObjectStoreLocation
from tidegate_contracts.whereabouts import Place

from lab.local_plane.object_store import ObjectStore, object_store
from tests.client.triton.publishing.opening import open_repository
from tests.proxy.rigs.pytest_rigs import not_run

from .papers import Answers, Life, Papers, context
from .test_life_target import MODEL, dataset, known, plane


class Both(Answers):
    def _served(self, model: str) -> tuple[int, ...]:
        return tuple(set.intersection(*(set(of(each, model)[0]) for each in self.repository)))

    def config(self, model: str, **_how: object) -> dict[str, object]:
        aliases = [of(each, model)[1] for each in self.repository]
        value = aliases[0]["champion"] if aliases[0] == aliases[1] else 0
        return {"parameters": {"tidegate.alias.champion": {"string_value": str(value)}}}


def of(models: Path, model: str) -> tuple[tuple[int, ...], dict[str, int]]:
    message = read_published((models / model / "config.pbtxt").read_text())
    return message.served, message.aliases


def test_a_version_comes_to_both_data_planes_or_to_none(tmp_path: Path) -> None:
    east, west = (tmp_path / "dataset" / name for name in ("east", "west"))
    for folder in (east, west, tmp_path / "shelf"):
        folder.mkdir(parents=True)
    papers = Papers(tmp_path / "shelf", MODEL)
    planes = (plane(name, dataset("v", name), wave, alias="champion") for wave, name in enumerate(("east", "west")))
    both, everywhere = known(*planes)
    here = context(everywhere, papers, Both([east, west]), tmp_path / "dataset")
    one = publish_version(here, "deploy", papers.register(1), both, "ci")
    assert (one.planes, of(east, MODEL), of(west, MODEL)) == (("east", "west"), *[((1,), {"champion": 1})] * 2)
    seen = 0

    def fail(when: str, step: str) -> None:
        nonlocal seen
        if (when, step) == ("before", "rename to config.pbtxt"):
            seen += 1
            if seen == 4:  # the switch in the west, after the one in the east
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    two = papers.register(2)
    steps.watch(fail)
    try:
        with pytest.raises(UnfinishedError, match="the served versions are unchanged"):
            publish_version(here, "deploy", two, both, "ci")
    finally:
        steps.watch()
    assert of(east, MODEL)[1] == of(west, MODEL)[1] == {"champion": 1}
    outcome = publish_version(here, "deploy", two, both, "ci")
    assert (outcome.version, outcome.previous, outcome.changed) == (2, 1, True)
    assert of(east, MODEL)[1] == of(west, MODEL)[1] == {"champion": 2}
    caught = [
        (each.version, each.plane, each.previous) for each in history(here, MODEL, "prod") if each.ended == "done"
    ]
    assert caught == [(2, "west", 1), (2, "east", 1), (1, "west", None), (1, "east", None)]


BUCKET = "models"
FIRST, LAST = "put model.py", "put labels.txt"
numbers = count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with not_run("A REAL S3"), object_store(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture
def url(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (store.variables | {"TIDEGATE_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/life{next(numbers)}/models"


@pytest.mark.parametrize("killed_at", [FIRST, LAST])
@pytest.mark.parametrize("earlier", [None, 1])
def test_the_run_after_a_kill_finishes_the_upload(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: int | None, killed_at: str
) -> None:
    life, repository = Life(tmp_path, ObjectStoreLocation(url=url)), open_repository(url)
    if earlier is not None:
        life.bring(earlier)

    def kill(when: str, step: str) -> None:
        if (when, step) == ("before", killed_at):
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Plan, "put_back", lambda _, **_how: None)  # a killed process restores nothing
        steps.watch(kill)
        try:
            with pytest.raises(SystemExit):
                life.bring(2)
        finally:
            steps.watch()
    assert 2 in repository.versions(MODEL)
    assert not any(file.path.endswith(killed_at.removeprefix("put ")) and file.path[0] == "2"
                   for file in repository.files(MODEL))  # fmt: skip
    assert read_published(repository.config(MODEL) or "").served == (() if earlier is None else (1,))
    outcome = life.bring(2)
    assert (outcome.version, outcome.previous, outcome.changed) == (2, earlier, True)
    assert read_published(repository.config(MODEL) or "").served == (2,)


def test_a_lost_file_is_no_upload_cut_short(url: str, store: ObjectStore, tmp_path: Path) -> None:
    life = Life(tmp_path, ObjectStoreLocation(url=url))
    life.bring(1)
    key = f"{url.removeprefix(f's3://{BUCKET}/')}/{MODEL}/1/factor"
    store.client().delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(IntegrityError, match="1/factor is missing"):
        life.bring(1)


def test_a_model_that_loads_on_demand_out_of_an_object_store_leaves_by_the_definition(tmp_path: Path, url: str) -> None:
    life, repository = Life(tmp_path, ObjectStoreLocation(url=url)), open_repository(url)
    life.bring(1)
    [east], [server] = life.of.planes, life.of.planes[0].servers
    pool = server.pools[0].model_copy(update={"loading": "on-demand"})
    east = east.model_copy(update={"servers": (server.model_copy(update={"pools": (pool,)}),)})
    with pytest.raises(RefusedError, match=f"remove {MODEL} from `models` of prod"):
        undeploy(replace(life.here, known=known(east)[1]), MODEL, "prod")
    assert read_published(repository.config(MODEL) or "").served == (1,)


def test_servers_that_poll_an_object_store_unload_removed_versions(tmp_path: Path, url: str) -> None:
    life, repository = Life(tmp_path, ObjectStoreLocation(url=url)), open_repository(url)
    life.bring(1)
    life.answers.places = (Place(replica="10.0.0.1:8000", state="resident"),)
    with pytest.raises(UnfinishedError, match="it is still served"):
        undeploy(life.here, MODEL, "prod")
    assert read_published(repository.config(MODEL) or "").served == (1,)
    life.answers.places = ()
    undeploy(life.here, MODEL, "prod")
    assert repository.models() == []


def test_nothing_is_removed_from_an_object_store_before_its_proxy_has_responded(tmp_path: Path, url: str) -> None:
    life, repository = Life(tmp_path, ObjectStoreLocation(url=url)), open_repository(url)
    life.bring(1)
    life.answers.silent = repeat(UnreachableError("no answer"))
    with pytest.raises(UnreachableError, match="no answer"):
        undeploy(life.here, MODEL, "prod")
    assert read_published(repository.config(MODEL) or "").served == (1,)
    assert [each.what for each in history(life.here, MODEL)] == ["deploy"]
