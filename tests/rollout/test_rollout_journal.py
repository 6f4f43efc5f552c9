"""What is kept of rollouts: the journal's lines, the texts, the last good rollout of each plane, the lock."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.waves import journal as journals
from rollout.waves.history import History, Past, texts_of
from rollout.waves.journal import Begin, Journal, Kind
from rollout.waves.plan import Step
from stacks.command import CommandError

STEPS = (Step("canary", ("east",)), Step("wave 2", ("west", "north")))


def begin(kind: Kind = "forward", planes: tuple[str, ...] = ("east", "west", "north"), **changes: Any) -> Begin:
    steps = tuple(Step(step.title, tuple(plane for plane in step.planes if plane in planes)) for step in STEPS)
    return Begin(
        **{
            "at": journals.now(),
            "kind": kind,
            "environment": "prod",
            "definition": "somewhere/two.yaml",
            "engine": "helm",
            "steps": tuple(step for step in steps if step.planes),
            "texts": {},
            "objects": {},
            "good": {},
            **changes,
        }
    )


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "rollout" / "prod")


def made(
    history: History, definition: Path, *, passed: str = "", failed: str = "", ended: str = "", **how: Any
) -> Past:
    """A rollout of the past; how it went for its planes, and how it ended."""
    texts = texts_of(definition)
    past = history.begin(begin(texts=texts.digests, definition=str(definition), **how), texts)
    journal = Journal(past.folder / journals.FILE)
    for plane in passed.split():
        journal.plane("applying", plane)
        journal.plane("passed", plane, 1.0)
    for plane in failed.split():
        journal.plane("applying", plane)
        journal.plane("failed", plane, 1.0, "no")
    if ended:
        journal.run("ended", ended)  # type: ignore[arg-type]
    journal.close()
    return past


# ---- lines ----


def test_each_line_is_json_with_the_time_and_the_first_has_the_version(history: History, definition: Path) -> None:
    past = made(history, definition, passed="east", failed="west", ended="failed")
    lines = [json.loads(line) for line in (past.folder / journals.FILE).read_text("utf-8").splitlines()]
    assert lines[0]["schema_version"] == journals.SCHEMA
    assert [line["event"] for line in lines] == ["begin", "applying", "passed", "applying", "failed", "ended"]
    assert all(line["at"].endswith("+00:00") for line in lines)


def test_a_line_is_on_the_disk_before_the_next_thing_happens(
    history: History, definition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = made(history, definition)
    journal = Journal(past.folder / journals.FILE)
    synced: list[bytes] = []
    path = past.folder / journals.FILE
    monkeypatch.setattr("rollout.waves.journal.os.fsync", lambda _: synced.append(path.read_bytes()))
    journal.plane("applying", "east")
    journal.close()
    assert b'"applying"' in synced[-1]


@pytest.mark.parametrize("torn", [b"{", b'{"at":"2026', b"\0\0\0\0", b'{"at":"x","event":"passed","plane":"east"}'])
def test_a_torn_last_line_is_left_out_and_cut_off_before_more_is_written(
    history: History, definition: Path, torn: bytes
) -> None:
    path = made(history, definition, passed="east").folder / journals.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert journals.read(path).planes["east"].state == "passed"
    journal = Journal(path)
    journal.plane("applying", "west")
    journal.close()
    assert path.read_bytes().startswith(whole + b'{"at"')
    assert journals.read(path).planes["west"].state == "applying"


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"at":"x","event":"exploded"}',
        b'{"at":"x","event":"passed","plane":"unknown"}',
        b'{"at":"x","event":"passed","plane":"east","more":1}',
        b"[]",
    ],
)
def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(
    history: History, definition: Path, line: bytes
) -> None:
    path = made(history, definition, passed="east").folder / journals.FILE
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(CommandError, match=r"0001/journal\.jsonl:4: this line of the journal cannot be understood"):
        journals.read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": []},
        {"steps": [{"title": "canary", "planes": []}]},
        {"steps": [{"title": "canary", "planes": ["east", "east"]}]},
        {"objects": {"unknown": "0"}},
        {"good": {"unknown": 1}},
        {"kind": "back", "takes_back": 1, "good": {}},
        {"kind": "back", "good": {"east": 1, "west": 1, "north": 1}},
        {"definition": ""},
        {"left_out": ["east"]},
    ],
)
def test_a_first_line_that_does_not_hold_together_is_damaged(
    history: History, definition: Path, changes: dict[str, Any]
) -> None:
    path = made(history, definition).folder / journals.FILE
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}) + "\n", "utf-8")
    with pytest.raises(CommandError, match=r"journal\.jsonl:1: this line of the journal cannot be understood"):
        journals.read(path)


def test_a_journal_that_was_cut_in_its_first_line_is_torn_and_not_empty(history: History, definition: Path) -> None:
    path = made(history, definition).folder / journals.FILE
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CommandError, match=r"journal\.jsonl:1: this line of the journal is torn"):
        journals.read(path)
    path.write_bytes(b"")
    with pytest.raises(CommandError, match="is empty"):
        journals.read(path)


def test_a_journal_of_a_later_version_is_refused(history: History, definition: Path) -> None:
    path = made(history, definition).folder / journals.FILE
    path.write_text(path.read_text("utf-8").replace('"schema_version":1', '"schema_version":2'), "utf-8")
    with pytest.raises(CommandError, match="version 2 of the journal, and this Tidegate knows version 1"):
        journals.read(path)


# ---- folders and texts ----


def test_a_rollout_keeps_the_texts_that_it_rolls_out(
    history: History, definition: Path, edit: Callable[[str, str], None]
) -> None:
    (definition.parent / "images.lock").write_text("images: []\n", "utf-8")
    before = definition.read_bytes()
    past = made(history, definition)
    edit("replicas: 1", "replicas: 2")
    assert past.definition_file.read_bytes() == before
    assert past.definition().stacks[0].platform.servers[0].pools[0].replicas == 1
    assert (past.definition_file.parent / "images.lock").read_text("utf-8") == "images: []\n"


@pytest.mark.parametrize("damage", ["edited", "removed", "added"])
def test_kept_texts_that_somebody_edited_are_refused(history: History, definition: Path, damage: str) -> None:
    past = made(history, definition)
    if damage == "edited":
        past.definition_file.write_text(past.definition_file.read_text("utf-8") + "# more\n", "utf-8")
    elif damage == "removed":
        past.definition_file.unlink()
    else:
        (past.definition_file.parent / "images.lock").write_text("images: []\n", "utf-8")
    with pytest.raises(CommandError, match=r"it was edited since|No such file"):
        past.definition()


def test_a_rollout_that_was_killed_while_it_began_is_none(history: History, definition: Path) -> None:
    made(history, definition)
    half = history.folder / ".0002.new"
    (half / "definition").mkdir(parents=True)
    assert [past.number for past in history.all()] == [1]
    assert made(history, definition).number == 2
    assert not half.exists()


# ---- the last good rollout of a plane ----


def test_the_last_good_rollout_is_the_latest_that_succeeded_with_that_plane(history: History, definition: Path) -> None:
    made(history, definition, passed="east west north", ended="succeeded")
    made(history, definition, planes=("west",), passed="west", ended="succeeded")
    made(history, definition, passed="east", failed="west", ended="failed")
    made(history, definition, passed="east")  # killed
    assert [history.good(plane) for plane in ("east", "west", "north", "south")] == [1, 2, 1, None]


def test_what_was_taken_back_is_good_no_longer(history: History, definition: Path) -> None:
    made(history, definition, passed="east west north", ended="succeeded")
    made(history, definition, passed="east west north", ended="succeeded")
    made(history, definition, kind="back", good={"east": 1, "west": 1, "north": 1}, takes_back=2, passed="east")
    assert [history.good(plane) for plane in ("east", "west", "north")] == [1, 1, 1]


# ---- the lock ----

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contracts")])}
HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from rollout.waves.history import History
with History(Path(sys.argv[1])).locked() as lock:
    if sys.argv[2] == "orphan":
        subprocess.Popen(["sleep", "1.5"], pass_fds=[lock])
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_rollouts_of_one_environment_at_once_are_refused(history: History) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(history.folder), "stay"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(CommandError, match=rf"Another rollout of prod is at work \(process {other.pid}\)"),
            history.locked(),
        ):
            pass
    finally:
        other.kill()
        other.wait()
        assert other.stdout
        other.stdout.close()
    with history.locked():
        pass


def test_what_a_killed_rollout_left_running_is_waited_for(history: History) -> None:
    subprocess.run([sys.executable, "-c", HOLD, str(history.folder), "orphan"], env=ENVIRONMENT, check=True, timeout=30)
    begun = time.monotonic()
    with history.locked():
        assert time.monotonic() - begun > 0.5
