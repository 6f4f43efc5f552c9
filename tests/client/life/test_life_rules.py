from datetime import UTC, datetime, timedelta

import pytest
from tidegate.errors import ExitCode, RefusedError
from tidegate.life import rules
from tidegate_contracts.environments import Promotion, WhoAmI

from .test_life_past import START, record

ANNA = WhoAmI(environment="prod", principal="anna", groups=("data-scientists", "deployers"), source="https://idp")
NOW = START + timedelta(hours=24)


@pytest.mark.parametrize(
    ("promotion", "writers"),
    [
        (Promotion(), ()),
        (Promotion(), ("deployers",)),
        (Promotion(principals=("anna",)), ()),
        (Promotion(groups=("deployers",)), ("somebody-else",)),
        (Promotion(principals=("ci",), groups=("data-scientists",)), ()),
    ],
)
def test_who_is_named_may(promotion: Promotion, writers: tuple[str, ...]) -> None:
    rules.may_publish("prod", promotion, writers, ANNA)


@pytest.mark.parametrize(
    ("promotion", "writers", "named"),
    [
        (Promotion(), ("admins",), "group admins"),
        (Promotion(principals=("ci",)), (), "ci"),
        (Promotion(principals=("Anna",)), (), "Anna"),
        (Promotion(groups=("anna",)), ("deployers",), "group anna"),
    ],
)
def test_who_is_not_named_is_told_who_is_and_as_whom_he_is_known(
    promotion: Promotion, writers: tuple[str, ...], named: str
) -> None:
    with pytest.raises(RefusedError) as told:
        rules.may_publish("prod", promotion, writers, ANNA)
    assert f"allows {named};" in str(told.value)
    assert "https://idp knows you as anna, in the groups data-scientists, deployers" in str(told.value)
    assert told.value.exit_code == ExitCode.REFUSED


def test_who_registered_a_version_may_not_bring_it_in_where_duties_are_separated() -> None:
    rules.other_than_who_registered("prod", 3, "bob", ANNA)
    for by in ("anna", "Anna", ""):
        with pytest.raises(RefusedError, match="version 3"):
            rules.other_than_who_registered("prod", 3, by, ANNA)
    with pytest.raises(RefusedError, match="not proven that root registered version 3"):
        rules.other_than_who_registered("prod", 3, "root", ANNA, "it is the login name")


def test_a_version_must_have_been_in_the_environment_that_versions_come_from() -> None:
    records = [record("deploy", 2, 1, 0, "dev"), record("deploy", 3, 2, 0, "lab")]
    rules.was_in("dev", "prod", 2, records)
    with pytest.raises(RefusedError, match="--to dev"):
        rules.was_in("dev", "prod", 3, records)


def test_a_version_that_has_served_long_enough_without_errors_has_soaked() -> None:
    records = [record("deploy", 2, 1, 0, "dev")]
    rules.has_soaked("dev", 2, 24, records, 0, NOW)
    rules.has_soaked("dev", 2, 0, [], None, NOW)


@pytest.mark.parametrize(
    ("hours", "failures", "said"),
    [(25, 0, "24.0 hours of 25"), (24, 3, "3 calls of version 2 failed"), (24, None, "cannot be learned")],
)
def test_a_version_that_has_not_soaked_is_refused(hours: float, failures: int | None, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        rules.has_soaked("dev", 2, hours, [record("deploy", 2, 1, 0, "dev")], failures, NOW)


def test_a_version_has_not_soaked_where_somebody_wrote_among_the_records() -> None:
    records = [record("deploy", 2, 1, 0, "dev")]
    with pytest.raises(RefusedError, match=r"records/x\.json cannot be read"):
        rules.has_soaked("dev", 2, 24, records, 0, NOW, ["records/x.json"])


def test_hours_after_it_was_rolled_back_do_not_count() -> None:
    records = [record("deploy", 2, 1, 0, "dev"), record("rollback", 1, 2, 1, "dev")]
    with pytest.raises(RefusedError, match=r"1\.0 hours of 2"):
        rules.has_soaked("dev", 2, 2, records, 0, datetime(2026, 6, 1, tzinfo=UTC))
