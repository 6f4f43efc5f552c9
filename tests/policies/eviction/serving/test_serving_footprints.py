"""What was learned survives a restart, and no file that is broken survives as knowledge."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_eviction.serving.footprints import REMEMBERED, Footprints


def again(before: Footprints, folder: Path) -> Footprints:
    if (text := before.changed()) is not None:
        before.write(text)
    after = Footprints(folder)
    after.read()
    return after


def test_what_was_measured_is_known_after_a_restart(tmp_path: Path) -> None:
    first = Footprints(tmp_path)
    first.read()
    first.grants(30, 0)
    first.learn("a", "one", 500, 2.5)
    second = again(first, tmp_path)
    assert (second.measured("a", "one"), second.load_seconds("a"), second.lease_seconds) == (500, 2.5, 30)


def test_another_content_is_not_measured_but_guessed(tmp_path: Path) -> None:
    learned = Footprints(tmp_path)
    learned.learn("a", "one", 500, 2.5)
    assert (learned.measured("a", "two"), learned.of_another_content("a")) == (None, 500)
    learned.learn("a", "two", 300, 2.0)
    assert (learned.measured("a", "two"), learned.measured("a", "one")) == (300, None)


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_the_largest_of_the_last_measurements_counts(sizes: list[int]) -> None:
    learned = Footprints(Path())
    for size in sizes:
        learned.learn("a", "one", size, 1)
    assert learned.measured("a", "one") == max(sizes[-REMEMBERED:])


def test_a_load_that_was_not_measured_teaches_its_seconds_only(tmp_path: Path) -> None:
    learned = Footprints(tmp_path)
    learned.learn("a", "one", None, 3)
    assert (learned.measured("a", "one"), learned.load_seconds("a")) == (None, None)
    learned.learn("a", "one", 9, 3)
    learned.learn("a", "one", None, 4)
    assert (learned.measured("a", "one"), learned.load_seconds("a")) == (9, 4)
    learned.learn("a", "one", 8, 0)
    assert learned.load_seconds("a") == 4, "as a part of an ensemble it took no seconds of its own"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 9, "lease_seconds": null, "models": {}}', '{"version": 1}',
        '{"version": 1, "lease_seconds": null, "models": {"a": {"stamp": "x", "bytes": [-1], "load_seconds": 1}}}',
        '{"version": 1, "lease_seconds": null, "models": {"a": {"stamp": "x", "bytes": [true], "load_seconds": 1}}}',
        '{"version": 1, "lease_seconds": null, "models": {"a": {"stamp": 5, "bytes": [], "load_seconds": 1}}}',
        '{"version": 1, "lease_seconds": null, "models": {"a": 5}}', "\x00",
    ],
)  # fmt: skip
def test_a_broken_file_is_learned_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "footprints.json").write_text(text)
    learned = Footprints(tmp_path)
    learned.read()
    assert (learned.models, learned.lease_seconds) == ({}, None)
    learned.learn("a", "one", 5, 1)
    assert again(learned, tmp_path).measured("a", "one") == 5


def test_nothing_is_written_without_news_and_a_folder_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learned = Footprints(tmp_path / "missing")
    assert learned.changed() is None
    learned.learn("a", "one", 5, 1)
    text = learned.changed()
    assert text is not None
    assert json.loads(text)["models"]["a"]["bytes"] == [5]
    assert learned.changed() is None
    learned.write(text)
    assert "cannot be written" in caplog.text
    assert learned.measured("a", "one") == 5
    caplog.clear()
    for _ in range(3):
        assert learned.changed() == text, "it is tried again"
        learned.write(text)
    assert not caplog.text, "and told once"
    (tmp_path / "missing").mkdir()
    assert again(learned, tmp_path / "missing").measured("a", "one") == 5


def test_longer_leases_of_earlier_settings_are_remembered_until_they_have_run_out(tmp_path: Path) -> None:
    first = Footprints(tmp_path)
    first.grants(30, 0)
    first.grants(5, 10)
    assert first.lease_seconds == 30
    second = again(first, tmp_path)
    second.grants(5, 100)
    third = again(second, tmp_path)
    third.grants(5, 200)
    third.grants(5, 229)
    assert third.lease_seconds == 30, "one start after the other does not shorten what the first has granted"
    third.grants(5, 230)
    assert again(third, tmp_path).lease_seconds == 5
