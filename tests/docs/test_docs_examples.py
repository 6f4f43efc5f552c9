from datetime import date
from pathlib import Path

import pytest

from policies.guardrails import check
from rollout.render import render
from stacks.validate import read_definition

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "docs/examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_valid_without_warnings_and_lacks_only_digests(file: Path) -> None:
    definition = read_definition(file)
    assert definition.advisories == ()
    objects = [render(stack, definition).objects for stack in definition.stacks]
    rules = {finding.rule for of_stack in objects for finding in check(of_stack, date(2027, 1, 1))}
    assert rules == {"images-are-pinned-by-digest"}
