"""Mistakes in production that `check` finds, and `render` refuses with the same words if a guardrail does."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import read_cases
from tests.stacks.definition.examples import dumped, edited_at, lock_tree

from .conftest import Call

MISTAKES = read_cases(Path(__file__).with_name("mistakes.yaml"))
SOUND: dict[str, Any] = {"proxy/access/callers": {"groups": ["callers"], "servers": ["main"]}}
"""Additional settings that production's guardrails require."""
ENDS = {"refused": 2, "guardrail": 1, "advisory": 0}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=[*MISTAKES])
def test_a_mistake_is_refused_or_breaks_a_guardrail_or_is_a_warning(
    case: dict[str, Any], call: Call, tmp_path: Path
) -> None:
    def check(**more: Any) -> Any:
        change = SOUND | case["change"] | more
        (tmp_path / "definition.yaml").write_text(edited_at(change), "utf-8")
        (tmp_path / "images.lock").write_text(dumped(lock_tree() if "v9" not in str(change) else {"images": []}))
        return call("check", tmp_path / "definition.yaml")

    (kind,) = case.keys() & ENDS.keys()
    checked = check()
    assert checked.code == ENDS[kind]
    assert case["says"] in checked.text
    assert kind != "refused" or "definition.yaml:" in checked.text
    if kind != "guardrail":
        return
    rendered = call("render", tmp_path / "definition.yaml", "--out", tmp_path / "out", code=1)
    assert case["says"] in rendered.err
    assert not (tmp_path / "out").exists()
    waiver = {"owner": "me", "reason": "so", "until": "2999-01-01"}
    waivers = [{"name": rule, "rule": rule, **waiver} for rule in (case["guardrail"], *case.get("also", ()))]
    assert check(**{"environments/prod/guardrails": {"waivers": waivers}}).code == 0


def test_nothing_is_reported_of_a_sound_definition(call: Call, tmp_path: Path) -> None:
    (tmp_path / "definition.yaml").write_text(edited_at(SOUND), "utf-8")
    (tmp_path / "images.lock").write_text(dumped(lock_tree()))
    checked = call("check", tmp_path / "definition.yaml")
    assert checked.code == 0
    assert "advisory" not in checked.text
