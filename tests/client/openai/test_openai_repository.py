"""A version of a language model is published whole, into a folder of its own, and stays there for the engines."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.kinds import KINDS
from tidegate.openai import configs
from tidegate.publishing import Repository, open_repository
from tidegate.registry.manifest import manifest_of
from tidegate.repository import Published
from tidegate_contracts.manifest import ENTRY_VERSION

from .models import write_entry

KIND = KINDS["openai"]


def served(owner: int, *numbers: int) -> str:
    return configs.published_config("", model="chat", owner=owner, served=numbers, aliases={})


def publish(repository: Repository, entry: Path, number: int, config: str) -> bool:
    with repository.lock("chat", "anna"):
        manifest = manifest_of(entry, "chat")
        staged = repository.staging("chat", number, manifest.size)
        shutil.copytree(entry, staged / ENTRY_VERSION)
        return repository.publish("chat", number, staged, manifest, config)


@pytest.mark.parametrize("where", ["folder", "S3"])
def test_versions_lie_beside_each_other_as_engines_read_them(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    (tmp_path / "dataset" / "models").mkdir(parents=True)
    place: Path | str = tmp_path / "dataset" / "models"
    repository = open_repository(request.getfixturevalue("url") if where == "S3" else place, KIND.configs)
    entries = {number: write_entry(tmp_path / word, word) for number, word in ((1, "one"), (2, "two"))}
    assert publish(repository, entries[1], 1, served(1, 1))
    assert publish(repository, entries[2], 2, served(2, 1, 2))
    manifests = {number: manifest_of(entry, "chat") for number, entry in entries.items()}
    for number, entry in entries.items():
        assert repository.differences("chat", number, manifests[number]) == []
        for file in entry.iterdir():
            assert b"".join(repository.chunks("chat", f"{number}/{file.name}")) == file.read_bytes()
    assert repository.strays("chat", manifests) == []
    with repository.lock("chat", "anna"):
        repository.withdraw("chat")
    assert repository.versions("chat") == [1, 2], "engines serve what is there, whatever tidegate makes of it"
    assert configs.read_published(repository.config("chat") or "") == Published(2, (), {})


@given(st.integers(1, 10**17), st.sets(st.integers(1, 10**17)), st.dictionaries(st.text(), st.integers(1, 10**17)))
def test_what_is_written_down_is_read_back(owner: int, numbers: set[int], aliases: dict[str, int]) -> None:
    text = configs.published_config("", model="chat", owner=owner, served=numbers, aliases=aliases)
    assert configs.read_published(text) == Published(owner, tuple(sorted(numbers)), aliases)
    assert configs.read_published(configs.withdrawn_config(text)) == Published(owner, (), {})
    assert configs.config_differences(text, text) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"owner": "1", "served": [], "aliases": {}}', '{"owner": 1}'])
def test_what_somebody_else_wrote_is_told(text: str) -> None:
    with pytest.raises(UsageError, match=r"tidegate\.json cannot be read"):
        configs.read_published(text)
