from pathlib import Path

import pytest
from tidegate.errors import BusyError, IntegrityError, NotFoundError, RefusedError, UsageError
from tidegate.publishing import Repository
from tidegate.triton.publishing.config import read_published

from tests.client.triton.publishing.opening import open_repository

from .entries import changing, config, content, entry, publish

ONE, TWO = entry(1), entry(2, size=9 << 20)
BOTH = {1: ONE.manifest, 2: TWO.manifest}


@pytest.fixture
def repository(where: Path | str) -> Repository:
    return open_repository(where)


def test_a_version_is_one_directory_next_to_its_owners_files(where: Path | str, repository: Repository) -> None:
    assert publish(where, ONE, 3) is True
    beside, own = ["config.pbtxt", "labels.txt", "notes/1.txt"], ["__pycache__", "model.py", "weights/data"]
    assert sorted(content(repository)) == [
        *(f"3/.entry/{path}" for path in beside),
        "3/.manifest.json",
        *(f"3/{path}" for path in own),
        *beside,
    ]
    assert content(repository)["3/.manifest.json"] == ONE.manifest.canonical()
    assert content(repository)["3/.entry/config.pbtxt"] == ONE.files["config.pbtxt"]
    assert (repository.models(), repository.versions("m")) == (["m"], [3])
    assert repository.config("m") == config(ONE, 3, [3])
    assert repository.differences("m", 3, ONE.manifest) == []
    assert repository.strays("m", {3: ONE.manifest}) == []


def test_no_version_is_ever_overwritten(where: Path | str, repository: Repository) -> None:
    publish(where, ONE, 1, prod=1)
    before = content(repository)
    assert publish(where, TWO, 2, [1, 2], prod=1) is True
    after = content(repository)
    assert {path: after[path] for path in before if path.startswith("1/")}.items() <= before.items()
    assert (repository.versions("m"), repository.strays("m", BOTH)) == ([1, 2], [])
    assert (after["labels.txt"], "notes/1.txt" in after) == (TWO.files["labels.txt"], False)
    assert publish(where, TWO, 2, [1, 2], prod=1) is False
    with pytest.raises(IntegrityError, match=r"version 1 of model m exists with other content: 1/\.entry/"):
        publish(where, TWO, 1)
    assert content(repository).items() >= after.items()


def test_names_and_paths_that_leave_the_repository_are_invalid(where: Path | str, repository: Repository) -> None:
    publish(where, ONE, 1)
    for name in ("..", ".", "../m", "a/b", "/etc", "", ".hidden", "a\0b", "a b", "é", "x" * 128):
        for use in (repository.versions, repository.files, repository.config):
            with pytest.raises(UsageError, match="is not a valid name of a model"):
                use(name)
        with pytest.raises(UsageError), repository.lock(name, "a test"):
            pass
    for path in ("../../secret", "/etc/passwd", "1/../../x", ""):
        with pytest.raises(UsageError, match="leads out of"):
            repository.read("m", path)
    with pytest.raises(NotFoundError, match="model m has no file 9/none"):
        repository.read("m", "9/none")
    with pytest.raises(IntegrityError, match="exceeds the size limit"):
        repository.read("m", "1/weights/data", limit=100)


def test_a_version_is_of_the_model_that_its_manifest_names(where: Path | str) -> None:
    with changing(where, "other") as repository:
        staged = repository.staging("other", 1)
        ONE.write(staged)
        with pytest.raises(IntegrityError, match="the manifest is of model m, not of other"):
            repository.publish("other", 1, staged, ONE.manifest, config(ONE, 1, [1]))
        assert repository.versions("other") == []


def test_configurations_name_only_versions_that_are_there(where: Path | str, repository: Repository) -> None:
    publish(where, ONE, 1)
    with pytest.raises(NotFoundError, match="model m needs version 2"):
        publish(where, ONE, 1, [1, 2])
    assert repository.config("m") == config(ONE, 1, [1])


def test_a_served_version_is_not_removed_and_another_immediately_is(where: Path | str) -> None:
    publish(where, ONE, 1)
    publish(where, TWO, 2, [1, 2])
    with changing(where) as repository:
        with pytest.raises(RefusedError, match="version 1 of model m cannot be removed: it is served"):
            repository.remove_version("m", 1)
        repository.write_config("m", config(TWO, 2, [2]))
        repository.remove_version("m", 1)
        repository.remove_version("m", 1)
        assert (repository.versions("m"), repository.strays("m", {2: TWO.manifest})) == ([2], [])


def test_a_model_that_is_withdrawn_or_removed_can_come_back(where: Path | str, repository: Repository) -> None:
    publish(where, ONE, 1, prod=1)
    before = content(repository)
    with changing(where) as changed:
        changed.withdraw("m")
        changed.withdraw("m")
    assert {path for path, text in content(repository).items() if text != before.get(path)} == {"config.pbtxt"}
    message = read_published(repository.config("m") or "")
    assert (message.owner, message.served) == (1, ())
    assert publish(where, ONE, 1, prod=1) is False
    assert content(repository) == before
    with changing(where) as changed:
        changed.withdraw("m")
        changed.remove_model("m")
        changed.remove_model("m")
    assert (repository.models(), repository.versions("m"), repository.config("m")) == ([], [], None)
    assert publish(where, ONE, 1, prod=1) is True
    assert content(repository) == before


def test_one_publisher_at_a_time_has_the_lock(where: Path | str, repository: Repository, tmp_path: Path) -> None:
    for change in (
        lambda: repository.staging("m", 1),
        lambda: repository.publish("m", 1, tmp_path, ONE.manifest, config(ONE, 1, [1])),
        lambda: repository.write_config("m", config(ONE, 1, [1])),
        lambda: repository.remove_version("m", 1),
        lambda: repository.withdraw("m"),
        lambda: repository.remove_model("m"),
    ):
        with pytest.raises(RuntimeError, match="requires its lock"):
            change()
    with repository.lock("m", "Ada"):
        with pytest.raises(BusyError, match="Ada has been publishing since"):
            publish(where, ONE, 1)
        assert publish(where, entry(1, "other"), 1) is True  # another model is not locked
    assert publish(where, ONE, 1) is True
