import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tidegate import environments
from tidegate.environments import DATASETS, Mounts, mounts
from tidegate.errors import NotFoundError, UnreachableError, UsageError
from tidegate.life.target import homes
from tidegate_contracts.environments import DatasetLocation, Environment, Environments, ModelFacts, Plane, ServerFacts

from tests.proxy.http.upstream import Received, replying, response, running_upstream

NAME = "grid-models"


def _environment(name: str, volume: str, dataset_id: str | None = None) -> Environment:
    location = DatasetLocation(dataset="models", path="preload", volume=volume, domino_dataset_id=dataset_id)
    server = ServerFacts(name="preload", kind="triton", location=location, pools=())
    model = ModelFacts(name="fraud-score", server="preload", pool="main")
    east = Plane(name="east", proxy_url="https://p", servers=(server,), models=(model,))
    return Environment(name=name, planes=(east,))


KNOWN = Environments(environments=(_environment("dev", "v1"), _environment("prod", "v2")))


def _folder(environment: str, message: Mounts, known: Environments = KNOWN) -> Path:
    (plane,) = environments.environment(environment, known).planes
    location = plane.servers[0].location
    assert isinstance(location, DatasetLocation)
    return environments.folder_of(location, environment, plane.name, known, message)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for name in ("dev", "prod"):
        (tmp_path / name / "preload").mkdir(parents=True)
    return tmp_path


def test_environments_are_read_from_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "environments.json"
    file.write_text(KNOWN.model_dump_json(by_alias=True))
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(file))
    assert environments.load() == environments.load(file) == KNOWN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Invalid JSON"),
        ('{"version": 2, "environments": []}', "version"),
        ('{"version": 1, "environments": [{"name": "dev", "planes": [], "color": "red"}]}', "environments.0.color"),
        (None, "No such file"),
        ("a pipe", "not a file"),
    ],
)
def test_a_strange_file_is_named_with_the_place(
    tmp_path: Path, text: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "environments.json"
    if text == "a pipe":
        os.mkfifo(file)  # reading it would block
    elif text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as caught:
        environments.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert why in str(caught.value)
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", " ")
    with pytest.raises(UsageError, match=r"TIDEGATE_ENVIRONMENTS is not set\n.*tidegate environments"):
        environments.load()


def test_a_misspelt_environment_or_model_is_reported_with_the_nearest_one_or_the_missing_line() -> None:
    with pytest.raises(NotFoundError, match="did you mean prod"):
        environments.environment("prd", KNOWN)
    with pytest.raises(NotFoundError, match="the environments are dev, prod"):
        environments.environment("x", KNOWN)
    of = environments.environment("dev", KNOWN)
    with pytest.raises(NotFoundError, match="did you mean fraud-score"):
        homes(of, "fraud-scor")
    with pytest.raises(NotFoundError, match=r"- \{name: churn, server: preload\}"):
        homes(of, "churn")


def test_the_most_exact_name_of_a_dataset_wins(mounted: Path) -> None:
    message = Mounts({"models": mounted / "dev", "prod/models": Path("/none"), "prod/east/models": mounted / "prod"})
    assert _folder("prod", message) == mounted / "prod" / "preload"
    assert _folder("dev", message) == mounted / "dev" / "preload"


def test_an_ambiguous_volume_name_is_refused_because_prod_must_not_reach_dev(mounted: Path) -> None:
    message = Mounts(datasets={"models": mounted / "dev"})
    with pytest.raises(UsageError, match="one volume here and another in dev on east"):
        _folder("prod", message)
    same = Environments(environments=(_environment("dev", "v1"), _environment("prod", "v1")))
    assert _folder("prod", message, same) == mounted / "dev" / "preload"


def test_tried_directories_are_listed_if_a_dataset_is_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has none of dev/east/models, dev/models, models\n.*=/path"):
        _folder("dev", Mounts())
    with pytest.raises(UsageError, match="there is no /nowhere"):
        _folder("dev", Mounts(datasets={"dev/models": Path("/nowhere")}))
    with pytest.raises(UsageError, match="has no directory preload"):
        _folder("dev", Mounts(datasets={"dev/models": tmp_path}))
    with pytest.raises(UsageError, match="this is not a Domino run"):
        _folder("dev", Mounts(), Environments(environments=(_environment("dev", "v1", "64a1"),)))
    location = DatasetLocation(dataset="models", path="../prod/preload", volume="v1")
    with pytest.raises(UsageError, match="leads out of"):
        environments.folder_of(location, "dev", "east", KNOWN, Mounts(datasets={"models": tmp_path}))


@contextmanager
def _domino(answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    """A fake of Domino's dataset API. The real one is a whole platform."""

    def reply(received: Received) -> bytes:
        status, body = answers.get(received.path, (404, "{}"))
        return response(body.encode(), status)

    with running_upstream(replying(reply)) as running:
        yield f"http://{running.http}"


def test_domino_names_a_dataset_by_its_id(mounted: Path) -> None:
    (mounted / NAME / "preload").mkdir(parents=True)
    known = Environments(environments=(_environment("dev", "v1", "64a1"),))
    with _domino({"/v4/datasetrw/datasets/64a1": (200, json.dumps({"id": "64a1", "name": NAME}))}) as api:
        roots = ("/nowhere", str(mounted))
        assert _folder("dev", Mounts(domino_api=api, domino_roots=roots), known) == mounted / NAME / "preload"
        with pytest.raises(UsageError, match=f"there is no /nowhere/{NAME} .its name in Domino is {NAME}."):
            _folder("dev", Mounts(domino_api=api, domino_roots=("/nowhere",)), known)


@pytest.mark.parametrize("body", ["{}", "[]", "no json", '{"name": "../prod"}', '{"name": ""}', '{"name": 7}'])
def test_a_domino_without_a_name_is_reported_with_its_address(body: str) -> None:
    known = Environments(environments=(_environment("dev", "v1", "64a1"),))
    with _domino({"/v4/datasetrw/datasets/64a1": (200, body)}) as api:
        with pytest.raises(UnreachableError) as caught:
            _folder("dev", Mounts(domino_api=api), known)
        assert str(caught.value).startswith(f"{api}/v4/datasetrw/datasets/64a1: ")
    with _domino({}) as api, pytest.raises(UnreachableError, match="HTTP 404"):
        _folder("dev", Mounts(domino_api=api), known)


def test_directories_of_datasets_are_set_by_name_and_environment_and_never_guessed() -> None:
    assert mounts({DATASETS: "", "DOMINO_API_PROXY": ""}) == Mounts()
    message = mounts({DATASETS: "models=/mnt/models, prod/models = /mnt/prod,", "DOMINO_API_PROXY": "http://d/"})
    assert message == Mounts({"models": Path("/mnt/models"), "prod/models": Path("/mnt/prod")}, "http://d")


@pytest.mark.parametrize(
    "text", ["models", "models=", "=/mnt", "models=mnt/models", "models=/a,models=/b", "models=~nobody-of-that-name/x"]
)
def test_invalid_datasets_are_reported_with_their_variable(text: str) -> None:
    with pytest.raises(UsageError, match=r"^TIDEGATE_DATASETS: "):
        mounts({DATASETS: text})
