"""What a life's steps leave to the next run, and what verifying finds where others have been at the repository."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path

import pytest
from tidegate.errors import (
    IntegrityError,
    LoadFailedError,
    NotFoundError,
    RefusedError,
    TidegateError,
    UnfinishedError,
    UnreachableError,
    UsageError,
)
from tidegate.life.audit import prune, unserved, verify
from tidegate.life.context import Context
from tidegate.life.deploy import promote, rollback
from tidegate.life.plan import Plan, published_entry_config
from tidegate.life.publish import bring
from tidegate.life.target import places
from tidegate.registry import Record
from tidegate.triton.publishing import read_published
from tidegate_contracts.environments import Environment, Environments, Promotion

from .entries import golden
from .papers import Answers, Papers, context
from .test_life_target import MODEL, dataset, known, plane


@pytest.fixture
def of() -> Environment:
    return known(plane("east", dataset("a")))[0]


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    (tmp_path / "dataset" / "models").mkdir(parents=True)
    (tmp_path / "shelf").mkdir()
    return Papers(tmp_path / "shelf", MODEL)


@pytest.fixture
def answers(papers: Papers) -> Answers:
    return Answers(papers.folder.parent / "dataset" / "models")


@pytest.fixture
def here(papers: Papers, answers: Answers) -> Context:
    return context(known(plane("east", dataset("a")))[1], papers, answers, answers.repository.parent)


def served(answers: Answers) -> tuple[int, ...]:
    return read_published((answers.repository / MODEL / "config.pbtxt").read_text()).served


def test_who_was_killed_before_the_golden_request_sends_it_in_the_next_run(
    here: Context, papers: Papers, answers: Answers, of: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = papers.register(1)
    papers.request = golden(7)  # which nothing here answers
    answers.killed = True
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "put_back", lambda _: None)  # who is killed puts nothing back
        with pytest.raises(SystemExit):
            bring(here, "deploy", version, of, "anna")
    answers.killed = False
    with pytest.raises(UnfinishedError, match="golden request"):
        bring(here, "deploy", version, of, "anna")
    assert (answers.asked, papers.written, papers.aliases) == ([1], [], {})
    papers.request = golden(0)
    assert bring(here, "deploy", version, of, "anna").changed
    assert bring(here, "deploy", version, of, "anna").changed is False
    assert answers.asked == [1, 1]
    assert [each.version for each in papers.written] == [1]


@pytest.mark.parametrize("earlier", [None, 1])
def test_who_fails_after_a_run_that_was_killed_behind_its_cut_over_goes_back_to_what_the_records_say(
    here: Context, papers: Papers, answers: Answers, of: Environment, earlier: int | None
) -> None:
    if earlier is not None:
        bring(here, "deploy", papers.register(earlier), of, "anna")
    version = papers.register(2)
    papers.stopped = SystemExit()
    with pytest.raises(SystemExit):
        bring(here, "deploy", version, of, "anna")
    assert served(answers) == (2,)
    papers.stopped, papers.request = None, golden(7)  # which nothing here answers
    with pytest.raises(UnfinishedError, match="golden request") as told:
        bring(here, "deploy", version, of, "anna")
    what = "nothing serves under its name" if earlier is None else "version 1 serves"
    assert told.value.what.endswith(f"; {what} again: an earlier run had calls go to version 2 already")
    assert served(answers) == (() if earlier is None else (1,))
    papers.request = None
    assert bring(here, "deploy", version, of, "anna").previous == earlier
    assert served(answers) == (2,)


def test_it_is_said_when_calls_may_have_gone_to_a_version_that_did_not_come(
    here: Context, papers: Papers, of: Environment
) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    version = papers.register(2)
    papers.request = golden(7)
    with pytest.raises(UnfinishedError, match="version 1 serves on") as told:
        bring(here, "deploy", version, of, "anna")
    assert "calls may have been answered by version 2 meanwhile" in told.value.why


def test_a_version_that_is_there_already_does_not_fail_to_come(
    here: Context, papers: Papers, answers: Answers, of: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = papers.register(1)
    bring(here, "deploy", version, of, "anna")
    here.wait_seconds = 0
    monkeypatch.setattr(answers, "metadata", lambda *_, **__: {"versions": []})
    with pytest.raises(UnfinishedError) as told:
        bring(here, "deploy", version, of, "anna")
    assert told.value.what == f"prod has version 1 of {MODEL} already, and it was not seen to be called"
    assert "meanwhile" not in str(told.value)
    assert served(answers) == (1,)


def test_a_load_that_fails_is_told_with_its_reason_before_the_time_is_up(
    here: Context, papers: Papers, answers: Answers, of: Environment
) -> None:
    here.wait_seconds = 30
    answers.broken[1] = repeat(LoadFailedError("the model cannot be loaded", why="no such file: weights.bin"))
    with pytest.raises(UnfinishedError, match="version 1 is not ready: it cannot be loaded") as told:
        bring(here, "deploy", papers.register(1), of, "anna")
    assert "why: no such file: weights.bin" in str(told.value)
    assert served(answers) == ()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (NotFoundError("no", why="'fraud' version 1 is not found"), "has not seen it in its repository yet"),
        (UnreachableError("no", why="'fraud' version 1 is not at ready state"), "has seen it, and is loading it still"),
        (UnreachableError("the proxy cannot be reached", why="refused"), "refused"),
    ],
    ids=["unseen", "seen", "away"],
)
def test_what_is_not_ready_in_time_is_told_with_how_far_it_came(
    here: Context,
    papers: Papers,
    answers: Answers,
    of: Environment,
    monkeypatch: pytest.MonkeyPatch,
    said: TidegateError,
    words: str,
) -> None:
    def metadata(*_: object, **__: object) -> None:
        raise said

    here.wait_seconds = 0
    monkeypatch.setattr(answers, "ready", lambda *_, **__: False)
    monkeypatch.setattr(answers, "metadata", metadata)
    with pytest.raises(UnfinishedError) as told:
        bring(here, "deploy", papers.register(1), of, "anna")
    assert words in told.value.why


def test_that_an_earlier_content_failed_to_load_does_not_end_it(
    here: Context, papers: Papers, answers: Answers, of: Environment
) -> None:
    answers.broken[1] = repeat(LoadFailedError("the model cannot be loaded", why="what was there before"), 2)
    assert bring(here, "deploy", papers.register(1), of, "anna").changed


def test_who_stops_while_it_is_written_down_is_told_what_is_left(
    here: Context, papers: Papers, of: Environment
) -> None:
    told: list[str] = []
    here.tell = told.append
    papers.stopped = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bring(here, "deploy", papers.register(1), of, "anna")
    assert "serves in prod, and not all is written down" in told[-1]
    assert "do: run the same command again" in told[-1]


def test_who_stops_before_that_is_told_what_serves(
    here: Context, papers: Papers, answers: Answers, of: Environment
) -> None:
    told: list[str] = []
    here.tell = told.append
    answers.killed = True
    with pytest.raises(SystemExit):
        bring(here, "deploy", papers.register(1), of, "anna")
    assert "did not come into prod; nothing serves under its name\n" in told[-1]


def test_a_configuration_that_is_no_text_is_told_with_its_place(
    here: Context, papers: Papers, answers: Answers, of: Environment
) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    version = papers.register(2)
    config = papers.folder / "2" / MODEL / "config.pbtxt"
    config.write_bytes(b"# caf\xe9\n" + config.read_bytes())
    with pytest.raises(UsageError, match=f"a shelf: version 2 of {MODEL}: config.pbtxt is no text in UTF-8"):
        bring(here, "deploy", version, of, "anna")
    (answers.repository / MODEL / "1" / ".entry" / "config.pbtxt").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"1/\.entry/config\.pbtxt: config\.pbtxt is no text"):
        published_entry_config(here.repository(places(of, MODEL, here.known)[0].homes[0]), MODEL, 1)


def test_what_lies_among_the_records_and_is_none_is_told_and_decides_nothing(
    here: Context, papers: Papers, of: Environment
) -> None:
    told: list[str] = []
    here.tell = told.append
    for number in (1, 2):
        bring(here, "deploy", papers.register(number), of, "anna")
    papers.junk = ("records/x.json",)
    bring(here, "deploy", papers.register(3), of, "anna")
    assert [each for each in told if each.startswith("warning: records/x.json cannot be read")]
    with pytest.raises(IntegrityError, match="it cannot be learned which version prod had before"):
        rollback(here, MODEL, "prod")
    assert rollback(here, MODEL, "prod", 2).version == 2
    papers.junk = ()
    assert [each.version for each in unserved(here, "prod", MODEL)] == [3]
    papers.junk = ("records/x.json",)
    assert unserved(here, "prod", MODEL) == []


def test_records_are_in_the_order_in_which_they_came_whatever_the_clocks_say(
    here: Context, papers: Papers, of: Environment
) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    here.now = lambda: datetime.now(UTC) + timedelta(hours=1)
    bring(here, "deploy", papers.register(2), of, "anna")
    here.now = lambda: datetime.now(UTC)
    assert rollback(here, MODEL, "prod").version == 1
    assert [(each.version, each.previous) for each in papers.written] == [(1, None), (2, 1), (1, 2)]
    assert sorted(papers.written, key=lambda each: each.when) == papers.written
    assert not bring(here, "rollback", papers.version(MODEL, "1"), of, "anna").changed


def test_a_damaged_version_that_a_rollback_wants_can_be_removed_and_is_brought_back(
    here: Context, papers: Papers, answers: Answers, of: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        bring(here, "deploy", papers.register(number), of, "anna")
    assert unserved(here, "prod", MODEL) == []
    (answers.repository / MODEL / "1" / "factor").write_text("9 ")
    with pytest.raises(IntegrityError, match="tidegate prune"):
        rollback(here, MODEL, "prod")
    (found,) = unserved(here, "prod", MODEL)
    monkeypatch.setattr("tidegate.life.audit.LOADED_SECONDS", 0.0)
    assert [each.version for each in prune(here, "prod", [found])] == [1]
    assert rollback(here, MODEL, "prod").version == 1
    assert (answers.repository / MODEL / "1" / "factor").read_text() != "9 "


def test_a_model_that_is_nowhere_is_not_verified(here: Context, papers: Papers, of: Environment) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    assert verify(here, "prod", [MODEL]).versions == 1
    with pytest.raises(NotFoundError, match="did you mean fraud"):
        verify(here, "prod", ["fruad"])


def test_a_data_plane_that_tells_no_failures_is_no_proof_that_there_were_none(
    papers: Papers, answers: Answers, tmp_path: Path
) -> None:
    dev = known(plane("east", dataset("a")), plane("west", dataset("b")))[0].model_copy(update={"name": "dev"})
    asked = Promotion(source="dev", soak_hours=1)
    prod = Environment(name="prod", promotion=asked, planes=(plane("north", dataset("c")),))
    here = context(Environments(environments=(dev, prod)), papers, answers, tmp_path)
    papers.register(1)
    papers.written = [
        Record(what="deploy", model=MODEL, version=1, who="anna", when=datetime.now(UTC) - timedelta(hours=2),
               environment="dev", plane=each.name) for each in dev.planes
    ]  # fmt: skip
    answers.failures = iter([0, None])
    with pytest.raises(RefusedError, match="cannot be learned whether calls of version 1 failed"):
        promote(here, f"{MODEL}@1", "prod")


def _notebooks_leftover(models: Path) -> None:
    (models / ".ipynb_checkpoints").mkdir()


def _linked_model(models: Path) -> None:
    (models / MODEL).rename(models.parent / "elsewhere")
    (models / MODEL).symlink_to(models.parent / "elsewhere")


def _link(models: Path) -> None:
    (models / MODEL / "1" / "link").symlink_to("/etc/passwd")


def _unreadable(models: Path) -> None:
    (models / MODEL / "config.pbtxt").write_text("nonsense {")


def _pipe(models: Path) -> None:
    (models / MODEL / "config.pbtxt").unlink()
    os.mkfifo(models / MODEL / "config.pbtxt")


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (_notebooks_leftover, "stray", "'.ipynb_checkpoints' cannot be a model's name"),
        (_linked_model, "content", f"the folder of model {MODEL} is a link"),
        (_link, "content", "1/link is a link or a special file"),
        (_unreadable, "config", "config.pbtxt cannot be read"),
        (_pipe, "content", "config.pbtxt is a link or a special file"),
    ],
)
def test_what_cannot_be_looked_at_is_found_and_hides_nothing_else(
    here: Context,
    papers: Papers,
    answers: Answers,
    of: Environment,
    spoil: Callable[[Path], None],
    kind: str,
    said: str,
) -> None:
    bring(here, "deploy", papers.register(1), of, "anna")
    (answers.repository / "zebra").mkdir()
    assert {each.model for each in verify(here, "prod").found} == {"zebra"}
    spoil(answers.repository)
    found = verify(here, "prod").found
    assert any(each.kind == kind and said in each.what for each in found), found
    assert "zebra" in {each.model for each in found}
