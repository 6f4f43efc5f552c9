import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from rollout.waves.journal import FILE, History, Journal, RolloutRecord, now, texts_of
from rollout.waves.plan import Step
from stacks.command import CommandError

from .conftest import ENVIRONMENT, Patch

STEPS = (Step("canary", ["east"]), Step("wave 2", ["west", "north"]))
NOT_UNDERSTOOD = r"0001/rollout\.json: this record is not valid, so the state of its data planes is unknown"


def begin(kind: Literal["forward", "back"] = "forward", planes: str = "east west north", **how: Any) -> RolloutRecord:
    steps = [Step(step.title, [plane for plane in step.planes if plane in planes.split()]) for step in STEPS]
    more = {"definition": "somewhere/two.yaml", "steps": [step for step in steps if step.planes], **how}
    return RolloutRecord(began_at=now(), kind=kind, environment="prod", engine="helm", **more)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "rollout" / "prod")


Made = Callable[..., Journal]


@pytest.fixture
def made(history: History, definition: Path) -> Made:
    def make(*, passed: str = "", failed: str = "", ended: Any = None, **how: Any) -> Journal:
        texts = texts_of(definition)
        journal = history.begin(begin(definition=str(definition), **how), texts)
        for state, planes in (("passed", passed), ("failed", failed)):
            for plane in planes.split():
                journal.note_plane(plane, "applying")
                journal.note_plane(plane, state, 1.0)  # type: ignore[arg-type]
        if ended:
            journal.note_outcome(ended)
        return journal

    return make


# ---- records ----


def test_a_record_has_the_state_of_every_plane_and_its_time(made: Made) -> None:
    journal = made(passed="east", failed="west", ended="failed")
    record = json.loads((journal.folder / FILE).read_bytes())
    assert [*record["planes"]] == ["east", "west", "north"]
    assert [status["state"] for status in record["planes"].values()] == ["passed", "failed", "waiting"]
    east = record["planes"]["east"]
    assert (east["attempts"], east["seconds"]) == (1, 1.0)
    assert record["began_at"] <= east["began_at"] <= east["changed_at"]
    assert Journal(journal.folder).record == journal.record
    assert [path.name for path in sorted(journal.folder.iterdir())] == ["definition", "logs", FILE]


def test_a_state_is_on_the_disk_before_the_next_thing_happens(made: Made, monkeypatch: Patch) -> None:
    journal = made()
    synced: list[int] = []
    monkeypatch.setattr("rollout.files.os.fsync", synced.append)
    journal.note_plane("east", "applying")
    assert len(synced) == 2, "the file, and the folder that names it"
    assert Journal(journal.folder).record.planes["east"].state == "applying"


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "nonsense",
        lambda tree: json.dumps(tree)[:40],
        lambda tree: json.dumps({**tree, "format": 3}),
        lambda tree: json.dumps({**tree, "steps": []}),
        lambda tree: json.dumps({**tree, "planes": {"east": {}}}),
        lambda tree: json.dumps({**tree, "kind": "back", "takes_back": 1}),
    ],
    ids=range(6),
)
def test_a_record_that_cannot_be_understood_is_an_error_that_names_it(made: Made, damage: Any) -> None:
    path = made(passed="east").folder / FILE
    path.write_text(damage(json.loads(path.read_bytes())), "utf-8")
    with pytest.raises(CommandError, match=NOT_UNDERSTOOD):
        _ = Journal(path.parent).record


# ---- directories and texts ----


def test_a_rollout_keeps_what_it_rolls_out(made: Made, definition: Path, edit: Callable[[str, str], None]) -> None:
    (definition.parent / "images.lock").write_text("images: []\n", "utf-8")
    before = definition.read_bytes()
    journal = made()
    edit("replicas: 1", "replicas: 2")
    assert journal.definition_file.read_bytes() == before
    stack = journal.definition().stacks[0]
    assert (stack.platform.servers[0].pools[0].replicas, stack.definition) == (1, journal.record.definition)
    assert stack.definition != str(journal.definition_file), "commands to copy have the original's path"
    assert (journal.definition_file.parent / "images.lock").read_text("utf-8") == "images: []\n"


def test_a_rollout_killed_at_its_start_does_not_count(made: Made, history: History) -> None:
    made()
    half = history.folder / ".0002.new"
    (half / "definition").mkdir(parents=True)
    assert [journal.number for journal in history.all()] == [1]
    assert made().number == 2
    assert not half.exists()


# ---- the last good rollout of a plane ----


def test_the_last_good_rollout_is_the_latest_that_succeeded_with_that_plane(made: Made, history: History) -> None:
    made(passed="east west north", ended="succeeded")
    made(planes="west", passed="west", ended="succeeded")
    made(passed="east", failed="west", ended="failed")
    made(passed="east")  # killed
    assert [history.good(plane) for plane in ("east", "west", "north", "south")] == [1, 2, 1, None]
    made(passed="east west north", ended="succeeded")
    made(kind="back", good={"east": 1, "west": 2, "north": 1}, takes_back=5, passed="east")
    assert [history.good(plane) for plane in ("east", "west", "north")] == [1, 2, 1], (
        "what was taken back is good no longer"
    )


# ---- the lock ----

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from rollout.waves.journal import History
with History(Path(sys.argv[1])).locked() as lock:
    if sys.argv[2] == "orphan":
        subprocess.Popen(["sh", "-c", 'sleep 1.5; touch "$0"', sys.argv[3]], pass_fds=[lock])
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_rollouts_of_one_environment_at_once_are_refused(history: History) -> None:
    command = [sys.executable, "-c", HOLD, str(history.folder), "stay"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(CommandError, match=rf"Another rollout of prod is running \(process {other.pid}\)"),
                history.locked(),
            ):
                pass
        finally:
            other.kill()
    with history.locked():
        pass


def test_engines_of_a_killed_rollout_are_awaited(history: History, tmp_path: Path) -> None:
    done = tmp_path / "done"
    command = [sys.executable, "-c", HOLD, str(history.folder), "orphan", str(done)]
    subprocess.run(command, env=ENVIRONMENT, check=True, timeout=60)
    with history.locked():
        assert done.exists()
        assert (history.folder / "lock").read_text("utf-8") == f"{os.getpid()}\n"
