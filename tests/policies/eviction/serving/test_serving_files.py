import asyncio
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.eviction import EvictionSettings
from tidegate_eviction.files import kept_secret
from tidegate_eviction.serving.footprints import REMEMBERED, Footprints
from tidegate_eviction.serving.settings import SettingsError, SettingsFile, read

GOOD: dict[str, Any] = {
    "version": 1, "policy": "lru-idle", "repository": "/models", "capacityBytes": 1000, "models": [{"name": "a"}],
    "idleSeconds": 300, "leaseSeconds": 30, "waitSeconds": 20,
}  # fmt: skip


def content(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Invalid JSON"),
        (content(version=2), "version: Input should be 1"),
        (content(repository="/mod\0els"), r"repository: '/mod\x00els' is not a path"),
        (content(surprise=1), "surprise: Extra inputs are not permitted"),
        (
            content(policy="fifo"),
            'policy: there is no policy "fifo". The built-in policies are break-even, lru-idle, cost-aware. ',
        ),
        (content(capacityBytes=0), "capacityBytes: Input should be greater than or equal to 1"),
        (content(leaseSeconds=10**400), "leaseSeconds: Input should be less than or equal to"),
        (content(models=[{"name": "a", "versions": [2**70]}]), "models.0.versions.0: Input should be less than"),
        (content(tuning={"retryMostSeconds": math.inf}), "tuning.retryMostSeconds: Input should be less than"),
        (content(models=[{"name": "a"}, {"name": "b"}, {"name": "a"}]), "models: listed twice: a"),
        (content(models=[{"name": "tidegate_memory"}]), "models: tidegate_memory is reserved"),
    ],
)
def test_invalid_settings_are_reported(data: bytes, why: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(data)
    assert str(error.value).startswith(why)
    assert "\n" not in str(error.value)


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "eviction.json"
    file.write_bytes(content())
    return file


def test_a_bad_file_is_refused_and_the_last_good_one_stays(settings_file: Path) -> None:
    used: list[EvictionSettings] = []
    followed = SettingsFile(settings_file, settings_file.with_name("copy"), lambda data: used.append(read(data)))
    followed.look()
    assert settings_file.with_name("copy").read_bytes() == content()
    for bad in (b"{", content(capacityBytes=-5)):
        settings_file.write_bytes(bad)
        followed.look()
        followed.look()
    assert len(used) == 1
    assert "capacityBytes" in followed.last_error
    settings_file.unlink()
    followed.look()
    assert followed.last_error == "the file cannot be read: No such file or directory"
    settings_file.write_bytes(content(capacityBytes=7))
    followed.look()
    assert (used[-1].capacity_bytes, followed.last_error) == (7, "")


def test_a_swapped_config_map_is_read_also_after_a_failed_read(
    tmp_path: Path,
) -> None:
    used: list[bytes] = []
    followed = SettingsFile(tmp_path / "data" / "eviction.json", tmp_path / "copy", used.append)
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "eviction.json").write_text(number)
        (tmp_path / "new").symlink_to(number)
        (tmp_path / "new").replace(tmp_path / "data")
        followed.look()
    (tmp_path / "2").rename(tmp_path / "away")
    followed.look()
    followed.look()
    assert (len(used), followed.last_error) == (2, "the file cannot be read: No such file or directory")
    (tmp_path / "away").rename(tmp_path / "2")
    followed.look()
    assert (used, followed.last_error) == ([b"1", b"2", b"2"], "")


def test_settings_lost_to_a_full_disk_are_written_once_it_has_space(settings_file: Path) -> None:
    copy, new = settings_file.with_name("copy"), settings_file.with_name(".copy.new")
    new.symlink_to("/dev/full")
    used: list[bytes] = []
    followed = SettingsFile(settings_file, copy, used.append)
    followed.look()
    assert not copy.exists()
    new.unlink()
    followed.look()
    assert copy.read_bytes() == content()


def again(before: Footprints, folder: Path) -> Footprints:
    asyncio.run(before.keep())
    after = Footprints(folder)
    after.read()
    return after


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_the_last_measurements_are_remembered(sizes: list[int]) -> None:
    learned = Footprints(Path())
    for size in sizes:
        learned.learn("a", "one", size, 1)
    assert learned.models["a"].bytes == sizes[-REMEMBERED:]


def test_a_load_that_was_not_measured_teaches_its_seconds_only(tmp_path: Path) -> None:
    learned = Footprints(tmp_path)
    learned.learn("a", "one", None, 3)
    assert learned.models == {}
    learned.learn("a", "one", 9, 3)
    learned.learn("a", "one", None, 4)
    assert (learned.models["a"].bytes, learned.models["a"].load_seconds) == ([9], 4)
    learned.learn("a", "one", 8, 0)
    assert learned.models["a"].load_seconds == 4, "as a part of an ensemble it has no load time"


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"version": 9, "models": {}}', '{"version": 1}',
        '{"version": 1, "models": {"a": {"stamp": "x", "bytes": [-1], "load_seconds": 1}}}',
        '{"version": 1, "models": {"a": {"stamp": 5, "bytes": [], "load_seconds": 1}}}',
    ],
)  # fmt: skip
def test_a_broken_file_is_replaced_by_new_measurements(tmp_path: Path, text: str) -> None:
    (tmp_path / "footprints.json").write_text(text)
    learned = Footprints(tmp_path)
    learned.read()
    assert learned.models == {}
    learned.learn("a", "one", 5, 1)
    assert again(learned, tmp_path).models["a"].bytes == [5]


def test_nothing_is_written_without_changes_and_an_unwritable_directory_has_no_other_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "missing"
    learned = Footprints(folder)
    learned.learn("a", "one", 5, 1)
    for _ in range(3):
        assert again(learned, folder).models == {}
    assert learned.models["a"].bytes == [5]
    assert caplog.text.count("cannot be written") == 1, "it is logged once"
    folder.mkdir()
    assert again(learned, folder).models["a"].bytes == [5]
    (folder / "footprints.json").unlink()
    assert again(learned, folder).models == {}, "there is no news"


def test_it_is_made_once_and_kept_when_the_policy_restarts(tmp_path: Path) -> None:
    first = kept_secret(tmp_path / "secret")
    assert len(first) == 64
    assert (tmp_path / "secret").read_text() == first
    assert kept_secret(tmp_path / "secret") == first
    assert kept_secret(tmp_path / "another") != first
    assert os.listdir(tmp_path) == ["secret", "another"] or os.listdir(tmp_path) == ["another", "secret"]


def test_other_users_cannot_read_it_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept_secret(tmp_path / "open")
        os.umask(0o777)
        kept_secret(tmp_path / "closed")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "closed")] == [0o640, 0o640]


@pytest.mark.parametrize("broken", [b"", b"abc", b"\xff" * 64, b"5" * 64 + b"\n"])
def test_files_of_a_killed_predecessor_are_replaced(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "secret").write_bytes(broken)
    (tmp_path / ".secret.new").write_bytes(b"half")
    assert kept_secret(tmp_path / "secret") == (tmp_path / "secret").read_text()
