"""Every validator of the model, broken and kept, and single values. docs/definition.schema.json, which is written from
the model, shows that no bound changes by accident."""

from pathlib import Path
from typing import Any

import pytest

from stacks.definition.base import byte_count, quantity_value
from tests.cases import each, read_cases
from tests.stacks.definition.examples import assert_refused, edited_at, own_rules, problems, sections

FOLDER = Path(__file__).parent
VALIDATORS = read_cases(FOLDER / "validators.yaml")
CASES = {**VALIDATORS, **read_cases(FOLDER / "fields.yaml"), **read_cases(FOLDER / "messages.yaml")}


@pytest.mark.parametrize(("_", "case"), each("refused", CASES))
def test_a_refusal_of_a_validator_is_reported_once_with_its_line(_: str, case: dict[str, Any]) -> None:
    parts = case.get("says", "")
    for part in [parts] if isinstance(parts, str) else parts:
        assert_refused(edited_at(case["change"]), case.get("at", ""), part)


@pytest.mark.parametrize(("_", "change"), each("accepted", CASES))
def test_values_that_a_validator_accepts_pass(_: str, change: dict[str, Any]) -> None:
    assert [each for each in problems(edited_at(change)) if each.severity == "error"] == []


def test_every_validator_of_the_model_is_broken_here() -> None:
    assert {rule for part in sections() for rule in own_rules(part)} <= VALIDATORS.keys()


@pytest.mark.parametrize(
    "argument", ["--model-contr=none", "--http-restrict=x", "--allow-htt=false", "--exit-timeout=1", "--http-p=1"]
)
def test_an_abbreviation_of_an_argument_that_tidegate_sets_is_refused_too(argument: str) -> None:
    """Triton reads its command line with getopt_long, which takes any beginning that fits one option only."""
    text = edited_at({"servers/main/triton": {"extraArguments": [argument]}})
    assert_refused(text, "»triton:", "Tidegate sets it itself")


@pytest.mark.parametrize(
    ("quantity", "count"),
    [("1", 1), ("1k", 1000), ("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("2M", 2 * 10**6), ("1Pi", 2**50), ("1000m", 1)],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(quantity: str, count: int) -> None:
    assert quantity_value(quantity) == count
    assert byte_count(quantity) == count


@pytest.mark.parametrize("quantity", ["", "1 Gi", "Gi", "1e3", "+1", "-1", "1GiB", "0x1", "1_000", "१", "1\n", "1Gi\n"])
def test_an_invalid_quantity_has_no_value(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        quantity_value(quantity)
