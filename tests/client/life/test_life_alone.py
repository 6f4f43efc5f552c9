"""Recovery from interrupted operations, and `verify` after changes by others, without real servers."""

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tidegate import errors
from tidegate.life.audit import unserved
from tidegate.life.deploy import deploy, promote, rollback
from tidegate.life.plan import Plan
from tidegate.publishing import Repository
from tidegate.registry import Record
from tidegate.triton.publishing import config
from tidegate_contracts.environments import Environment, Environments, Promotion
from tidegate_contracts.routing import VersionShare
from tidegate_contracts.whereabouts import Place, VersionFailure

from .entries import golden
from .papers import Life, context
from .test_life_target import MODEL, dataset, known, plane


def test_the_run_after_a_kill_sends_the_missing_golden_request(life: Life) -> None:
    life.papers.request = golden(7)  # no version here gives this answer
    life.answers.killed = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "put_back", lambda _, **_how: None)  # a killed process restores nothing
        with pytest.raises(SystemExit):
            life.bring(1)
    life.answers.killed = False
    life.fails(1, "golden request")
    assert (life.answers.requested, life.papers.written, life.papers.aliases) == ([1], [], {})
    life.papers.request = golden(0)
    assert [life.bring(1).changed for _ in range(2)] == [True, False]
    assert life.answers.requested == [1, 1]
    assert [each.version for each in life.papers.written] == [1]


def test_a_broken_configuration_on_the_volume_ends_a_deployment_immediately_with_its_place(life: Life) -> None:
    life.bring(1)
    (life.models / MODEL / "config.pbtxt").write_text("name: this is none {\n")
    with pytest.raises(errors.UsageError, match=r"config\.pbtxt cannot be read: 1:\d+ : "):
        life.bring(2)
    assert life.answers.requested == []


@pytest.mark.parametrize("earlier", [None, 1])
def test_a_failure_after_a_run_killed_past_its_cut_over_rolls_back_by_the_records(
    life: Life, earlier: int | None
) -> None:
    if earlier is not None:
        life.bring(earlier)
    life.papers.stopped = SystemExit()
    with pytest.raises(SystemExit):
        life.bring(2)
    assert life.served() == (2,)
    life.papers.stopped, life.papers.request = None, golden(7)  # no version here gives this answer
    after = (
        "on servers without an earlier version"
        if earlier is None
        else "on servers where version 2 may have answered calls"
    )
    assert after in life.fails(2, "golden request").what
    assert life.served() == (() if earlier is None else (1,))
    life.papers.request = None
    assert life.bring(2).previous == earlier
    assert life.served() == (2,)


def test_if_nothing_could_be_written_no_message_warns_of_answers(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repository, "publish", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert life.fails(1).what == f"version 1 of {MODEL} did not reach prod: the served versions are unchanged"


def test_a_version_that_is_already_deployed_is_no_failure(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.bring(1)
    life.here.wait_seconds = 0
    monkeypatch.setattr(life.answers, "metadata", lambda *_, **__: {"versions": []})
    caught = life.fails(1)
    seen = f"prod already has version 1 of {MODEL}, but calls may not reach it"
    assert caught.what == f"{seen}: the served versions are unchanged"
    assert life.served() == (1,)


def test_a_failed_load_is_reported_with_its_reason_before_the_timeout(life: Life) -> None:
    life.here.wait_seconds = 30
    broken = errors.LoadFailedError("the model cannot be loaded", why="no such file: weights.bin")
    life.answers.broken[1] = repeat(broken)
    caught = life.fails(1, "version 1 is not ready: it cannot be loaded")
    assert "why: no such file: weights.bin" in str(caught)
    assert life.served() == ()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (errors.NotFoundError("no", why="'fraud' version 1 is not found"), "has not found it in its repository yet"),
        (errors.UnreachableError("no", why="'fraud' version 1 is not at ready state"), "is still loading it"),
        (errors.UnreachableError("the proxy cannot be reached", why="refused"), "refused"),
    ],
    ids=["unseen", "seen", "away"],
)
def test_the_state_of_the_load_is_reported(
    life: Life, monkeypatch: pytest.MonkeyPatch, message: errors.TidegateError, words: str
) -> None:
    def metadata(*_: object, **__: object) -> None:
        raise message

    life.here.wait_seconds = 0
    monkeypatch.setattr(life.answers, "ready", lambda *_, **__: False)
    monkeypatch.setattr(life.answers, "metadata", metadata)
    assert words in life.fails(1).why


@pytest.mark.parametrize("seen_seconds", [30, 0])
def test_a_failure_ends_it_only_when_it_was_seen_after_the_load_was_tried_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, seen_seconds: int
) -> None:
    life.here.wait_seconds, life.here.poll_seconds = 30, 0.0
    failure = VersionFailure(version=1, why="as before", since=datetime.now(UTC))
    life.answers.places = (Place(replica="a:1", state="failed", failures=(failure,), seen_seconds=seen_seconds),)
    loads = repeat(False, 7) if seen_seconds else repeat(False)
    monkeypatch.setattr(life.answers, "ready", lambda *_, **__: next(loads, True))
    not_ready = repeat(errors.UnreachableError("no", why=f"version 1 {config.NOT_READY}"), 7 if seen_seconds else 999)
    caught = life.answers.metadata

    def metadata(model: str, **how: Any) -> dict[str, Any]:
        if error := next(not_ready, None):
            raise error
        return caught(model, **how)

    monkeypatch.setattr(life.answers, "metadata", metadata)
    if seen_seconds:
        assert life.bring(1).changed
    else:
        assert "why: as before" in str(life.fails(1, "version 1 is not ready: it cannot be loaded"))


def test_an_interrupt_reports_served_and_leftover_versions(life: Life) -> None:
    life.answers.killed = True
    with pytest.raises(SystemExit):
        life.bring(1)
    assert (
        "did not reach prod: on servers without an earlier version, it can answer until they poll" in life.messages[-1]
    )
    life.answers.killed, life.papers.stopped = False, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        life.bring(1)
    assert "is served in prod, but the registry is not up to date" in life.messages[-1]
    assert "do: run the same command again" in life.messages[-1]


def test_an_alias_that_moves_meanwhile_is_reported_and_nothing_is_switched(life: Life) -> None:
    life.bring(1)
    life.bring(2)

    def move(text: str) -> None:
        if text.startswith("waiting until version"):
            life.papers.aliases["prod"] = 1

    life.here.tell = move
    with pytest.raises(errors.BusyError, match="moved from version 2 to version 1 meanwhile"):
        life.bring(3)
    assert life.served() == (2,)


@pytest.mark.parametrize("name", ["latest", "v2"])
def test_nothing_is_published_to_an_environment_that_mlflow_has_no_alias_for(life: Life, name: str) -> None:
    life.of = life.of.model_copy(update={"name": name})
    life.here.known = Environments(environments=(life.of,))
    with pytest.raises(errors.UsageError, match="cannot record versions") as refused:
        life.bring(1)
    assert "reserves" in refused.value.why
    assert [*life.models.iterdir()] == []


def test_an_alias_moved_after_the_cut_over_is_not_overwritten_and_the_remedy_is_not_to_run_it_again(life: Life) -> None:
    life.bring(1)
    life.papers.stopped = errors.BusyError("the alias was moved", do="read `tidegate history`")
    with pytest.raises(errors.UnfinishedError) as refused:
        life.bring(2)
    assert refused.value.do == "read `tidegate history`"
    assert life.papers.aliases == {"prod": 1}


def test_a_deployment_reports_an_alias_that_was_moved_by_hand_before_it(life: Life) -> None:
    life.bring(1)
    life.bring(2)
    life.papers.aliases["prod"] = 1
    (note,) = [each for each in life.bring(3).notes if "alias" in each]
    assert "was at version 1, but the records have version 2" in note
    assert not [each for each in life.bring(4).notes if "alias" in each]


def test_an_environment_and_a_plane_of_other_names_keep_their_past(life: Life) -> None:
    """The former alias stays next to the current one, and an existing version is not published again."""
    life.bring(1)
    life.bring(2)
    written = [*life.papers.written]
    planes = (life.of.planes[0].model_copy(update={"name": "west", "formerly": ("east",)}),)
    life.of = life.of.model_copy(update={"name": "live", "formerly": ("prod",), "planes": planes})
    life.here.known = Environments(environments=(life.of,))
    assert life.here.alias(MODEL, "live") == 2
    assert [(each.environment, each.plane) for each in life.here.records(MODEL)] == [("live", "west")] * 2
    assert life.papers.aliases == {"prod": 2}, "looking writes nothing"
    assert not life.bring(2).changed
    assert life.papers.written == written
    assert life.bring(3).previous == 2
    assert life.papers.aliases == {"prod": 2, "live": 3}


def test_a_deployment_only_publishes_if_the_definition_has_traffic_shares(life: Life) -> None:
    shares = (VersionShare(version=1, weight=100),)
    life.of, life.here.known = known(plane("east", dataset("a"), versions=shares))
    assert not any("no calls go" in note for note in life.bring(1).notes)
    assert any("have the platform admin add version 2 there" in note for note in life.bring(2).notes)
    assert life.served() == (1, 2)
    back = rollback(life.here, MODEL, "prod")
    assert (back.version, back.previous) == (1, 2)


def test_a_configuration_that_is_not_text_is_reported_with_its_place(life: Life) -> None:
    life.bring(1)
    life.papers.register(2)
    config = life.papers.folder / "2" / MODEL / "config.pbtxt"
    config.write_bytes(b"# caf\xe9\n" + config.read_bytes())
    with pytest.raises(errors.UsageError, match=f"a shelf: version 2 of {MODEL}: config.pbtxt is not valid UTF-8"):
        life.bring(2)
    (life.models / MODEL / "1" / ".entry" / "config.pbtxt").write_bytes(b"\xff")
    with pytest.raises(errors.UsageError, match=r"1/\.entry/config\.pbtxt: config\.pbtxt is not valid UTF-8"):
        life.bring(3)


def test_a_file_that_is_not_a_record_is_reported_and_decides_nothing(life: Life) -> None:
    life.bring(1)
    life.bring(2)
    life.papers.junk = ("records/x.json",)
    life.bring(3)
    assert [each for each in life.messages if each.startswith("warning: records/x.json cannot be read")]
    with pytest.raises(errors.IntegrityError, match="the previous version of prod is unknown"):
        rollback(life.here, MODEL, "prod")
    assert rollback(life.here, MODEL, "prod", 2).version == 2
    life.papers.junk = ()
    assert [each.version for each in unserved(life.here, "prod", MODEL)] == [3]
    life.papers.junk = ("records/x.json",)
    assert unserved(life.here, "prod", MODEL) == []


def test_records_keep_their_order_despite_wrong_clocks(life: Life) -> None:
    life.bring(1)
    life.here.now = lambda: datetime.now(UTC) + timedelta(hours=1)
    life.bring(2)
    life.here.now = lambda: datetime.now(UTC)
    assert rollback(life.here, MODEL, "prod").version == 1
    written = life.papers.written
    assert [(each.version, each.previous) for each in written] == [(1, None), (2, 1), (1, 2)]
    assert sorted(written, key=lambda each: each.when) == written
    assert not life.bring(1, "rollback").changed


def between(life: Life, tmp_path: Path, **promotion: object) -> None:
    """Let prod take versions from dev, which is on two data planes, under such rules."""
    dev = known(plane("east", dataset("a")), plane("west", dataset("b")))[0].model_copy(update={"name": "dev"})
    requested = Promotion.model_validate({"source": "dev"} | promotion)
    prod = Environment(name="prod", promotion=requested, planes=(plane("north", dataset("c")),))
    life.here = context(Environments(environments=(dev, prod)), life.papers, life.answers, tmp_path)
    life.papers.register(1)


def deployed_to_dev(life: Life) -> None:
    life.papers.written = [
        Record(what="deploy", model=MODEL, version=1, who="anna", when=datetime.now(UTC) - timedelta(hours=2),
               environment="dev", plane=plane) for plane in ("east", "west")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asks", "kind", "message"),
    [
        (lambda here: promote(here, f"{MODEL}@1", "prod"), errors.RefusedError, "version 1 was never in dev"),
        (lambda here: promote(here, MODEL, "prod"), errors.NotFoundError, "dev has no version of fraud"),
        (lambda here: promote(here, MODEL, "dev"), errors.UsageError, "has no source environment"),
        (lambda here: deploy(here, MODEL, "prod"), errors.RefusedError, "tidegate promote fraud --to prod"),
        (lambda here: deploy(here, f"{MODEL}@"), errors.UsageError, "is not a model"),
        (lambda here: rollback(here, MODEL, "prod"), errors.NotFoundError, "never had a version"),
        (lambda here: rollback(here, MODEL, "prod", 1), errors.RefusedError, "version 1 of fraud was never in prod"),
    ],
)
def test_every_operation_refuses_invalid_input(
    life: Life, tmp_path: Path, asks: Callable[[object], object], kind: type[errors.TidegateError], message: str
) -> None:
    between(life, tmp_path)
    with pytest.raises(kind, match=message):
        asks(life.here)


@pytest.mark.parametrize("which", [MODEL, f"{MODEL}@1"])
def test_a_missing_earlier_environment_is_named_with_the_command_to_deploy_there(
    life: Life, tmp_path: Path, which: str
) -> None:
    between(life, tmp_path)
    dev, prod = life.here.known.environments
    test = prod.model_copy(update={"name": "test"})
    prod = prod.model_copy(update={"promotion": Promotion(source="test")})
    life.here.known = Environments(environments=(dev, test, prod))
    with pytest.raises(errors.TidegateError, match=f"tidegate promote {which} --to test"):
        promote(life.here, which, "prod")


def test_a_data_plane_without_a_count_of_failures_proves_nothing(life: Life, tmp_path: Path) -> None:
    between(life, tmp_path, soak_hours=1)
    deployed_to_dev(life)
    life.answers.failures = iter([0, None])
    with pytest.raises(errors.RefusedError, match="unknown whether calls of version 1 failed"):
        promote(life.here, f"{MODEL}@1", "prod")
