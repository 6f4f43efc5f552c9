from contextlib import nullcontext
from datetime import timedelta

import pytest
from tidegate.errors import RefusedError
from tidegate.life import rules
from tidegate.registry import Record
from tidegate_contracts.environments import Promotion, WhoAmI

from .test_life_past import START, record

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
def test_who_is_named_may_and_who_is_not_is_told_who_is_and_as_whom_he_is_known(
    promotion: Promotion, writers: tuple[str, ...], named: str
) -> None:
    if not named:
        rules.may_publish("prod", promotion, writers, ANNA)
        return
    with pytest.raises(RefusedError) as told:
        rules.may_publish("prod", promotion, writers, ANNA)
    assert f"allows {named};" in str(told.value)
    assert "https://idp knows you as anna, in the groups data-scientists, deployers" in str(told.value)


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


DEPLOYED = record("deploy", 2, 1, 0, "dev")
BACK = record("rollback", 1, 2, 1, "dev")


@pytest.mark.parametrize(
    ("records", "hours", "failures", "unreadable", "said"),
    [
        ([DEPLOYED], 24, 0, [], ""),
        ([], 0, None, [], ""),
        ([DEPLOYED], 25, 0, [], r"24\.0 hours of 25"),
        ([DEPLOYED], 24, 3, [], "3 calls of version 2 failed"),
        ([DEPLOYED], 24, None, [], "cannot be learned whether"),
        ([DEPLOYED], 24, 0, ["records/x.json"], r"records/x\.json cannot be read"),
        ([DEPLOYED, BACK], 2, 0, [], r"1\.0 hours of 2"),
    ],
)
def test_a_version_has_soaked_when_it_has_surely_served_long_enough_without_errors(
    records: list[Record], hours: float, failures: int | None, unreadable: list[str], said: str
) -> None:
    with pytest.raises(RefusedError, match=said) if said else nullcontext():
        rules.has_soaked("dev", 2, hours, records, failures, NOW, unreadable)
