from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from tidegate.errors import RefusedError
from tidegate.life import rules
from tidegate.life.rules import before, current, served_hours
from tidegate.registry import Record
from tidegate.registry.version import Records
from tidegate_contracts.environments import Promotion, WhoAmI

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(
    what: str, version: int, previous: int | None, hours: float, environment: str = "prod", plane: str = "east"
) -> Record:
    return Record.model_validate({
        "what": what, "model": "fraud", "version": version, "who": "ci", "when": START + timedelta(hours=hours),
        "previous": previous, "environment": environment, "plane": plane,
    })  # fmt: skip


THREE = [record("promote", 1, None, 0), record("promote", 2, 1, 10), record("promote", 3, 2, 30)]


def test_an_environment_has_the_version_of_its_last_record() -> None:
    assert current(THREE, "prod") == 3
    assert current(THREE[::-1], "prod", "east") == 3
    assert current(THREE, "prod", "west") is None
    assert current(THREE, "dev") is None


def test_a_rollback_restores_the_previous_version_and_two_go_back_two_versions() -> None:
    records = [*THREE, record("rollback", 2, 3, 40)]
    assert [before(records, "prod", number) for number in (3, 2, 1)] == [2, 1, None]
    assert before([*THREE, record("promote", 1, 3, 40)], "prod", 1) == 3
    noise = [record("register", 9, None, 50, "prod"), record("deploy", 9, 8, 50, "dev")]
    assert current([*THREE, *noise], "prod") == 3


@pytest.mark.parametrize(("number", "hours"), [(1, 10), (2, 20), (3, 5), (4, 0)])
def test_hours_are_counted_from_a_record_to_the_next(number: int, hours: float) -> None:
    assert served_hours(THREE, "prod", number, START + timedelta(hours=35)) == pytest.approx(hours)


def test_of_several_data_planes_that_had_it_the_one_with_the_fewest_hours_counts() -> None:
    records = [*THREE, record("promote", 3, 2, 20, plane="west"), record("promote", 2, 1, 0, plane="far")]
    assert served_hours(records, "prod", 3, START + timedelta(hours=35)) == pytest.approx(5)


def test_a_record_from_a_clock_that_goes_ahead_counts_nothing() -> None:
    assert served_hours([record("promote", 1, None, 99)], "prod", 1, START) == 0


ANNA = WhoAmI(environment="prod", principal="anna", groups=("data-scientists", "deployers"), source="https://idp")
NOW = START + timedelta(hours=24)


@pytest.mark.parametrize(
    ("promotion", "writers", "named"),
    [
        (Promotion(), (), ""),
        (Promotion(), ("deployers",), ""),
        (Promotion(principals=("anna",)), (), ""),
        (Promotion(groups=("deployers",)), ("somebody-else",), ""),
        (Promotion(principals=("ci",), groups=("data-scientists",)), (), ""),
        (Promotion(), ("admins",), "group admins"),
        (Promotion(principals=("ci",)), (), "ci"),
        (Promotion(principals=("ci",)), ("deployers",), "ci"),
        (Promotion(principals=("Anna",)), (), "Anna"),
        (Promotion(groups=("anna",)), ("deployers",), "group anna"),
    ],
)
def test_a_listed_caller_may_deploy_and_others_see_the_list(
    promotion: Promotion, writers: tuple[str, ...], named: str
) -> None:
    if not named:
        rules.may_publish("prod", promotion, writers, ANNA)
        return
    with pytest.raises(RefusedError) as caught:
        rules.may_publish("prod", promotion, writers, ANNA)
    assert f"allows {named}." in str(caught.value)
    assert "https://idp identifies you as anna, in the groups data-scientists, deployers" in str(caught.value)


def test_the_registrant_may_not_deploy_if_duties_are_separated() -> None:
    rules.other_than_who_registered("prod", 3, "bob", ANNA)
    for by in ("anna", "Anna", ""):
        with pytest.raises(RefusedError, match="version 3"):
            rules.other_than_who_registered("prod", 3, by, ANNA)
    with pytest.raises(RefusedError, match="no proof that root registered version 3"):
        rules.other_than_who_registered("prod", 3, "root", ANNA, "it is the login name")


def test_a_version_must_have_been_in_the_environment_that_versions_come_from() -> None:
    records = [record("deploy", 2, 1, 0, "dev"), record("deploy", 3, 2, 0, "lab")]
    rules.was_in("dev", "prod", 2, records, "")
    with pytest.raises(RefusedError, match="first: tidegate deploy fraud@3"):
        rules.was_in("dev", "prod", 3, records, "tidegate deploy fraud@3")


DEPLOYED = record("deploy", 2, 1, 0, "dev")
BACK = record("rollback", 1, 2, 1, "dev")


@pytest.mark.parametrize(
    ("records", "hours", "failures", "unreadable", "message"),
    [
        ([DEPLOYED], 24, 0, [], ""),
        ([DEPLOYED], 25, 0, [], r"24\.0 hours of the required 25"),
        ([DEPLOYED], 24, 3, [], "calls of version 2 failed in dev: 3"),
        ([DEPLOYED], 24, None, [], "unknown whether"),
        ([DEPLOYED], 24, 0, ["records/x.json"], r"records/x\.json cannot be read"),
        ([DEPLOYED, BACK], 2, 0, [], r"1\.0 hours of the required 2"),
    ],
)
def test_a_version_has_soaked(
    records: list[Record], hours: float, failures: int | None, unreadable: list[str], message: str
) -> None:
    with pytest.raises(RefusedError, match=message) if message else nullcontext():
        rules.has_soaked("dev", 2, hours, Records(records, unreadable), failures, NOW)
