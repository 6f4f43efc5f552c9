"""What leaves production open, or never works, is said by `check`, and `up` says the same of the same file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.problems import DefinitionError
from stacks.validate import read_definition
from tests.cases import read_cases
from tests.stacks.definition.examples import BASE, dumped, edited_at, lock_tree

from .conftest import Call

MISTAKES = read_cases(Path(__file__).with_name("mistakes.yaml"))
SOUND: dict[str, Any] = {"proxy/access/callers": {"groups": ["callers"], "servers": ["main"]}}
"""Beside the base definition, what production's guardrails want."""
Written = Callable[[dict[str, Any]], Path]
ENDS = {"refused": 2, "guardrail": 1, "advisory": 0}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(change: dict[str, Any]) -> Path:
        path = tmp_path / "definition.yaml"
        path.write_text(edited_at(SOUND | change), "utf-8")
        (tmp_path / "images.lock").write_text(dumped(lock_tree() if "v9" not in str(change) else {"images": []}))
        return path

    return write


def test_nothing_is_said_of_a_sound_definition(written: Written, call: Call) -> None:
    assert "advisory" not in call("check", written({}), code=0).text
    assert yaml.safe_load(BASE)["environments"][1]["production"]


@pytest.mark.parametrize(("name", "case"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_refused_a_guardrail_or_an_advisory(
    name: str, case: dict[str, Any], written: Written, call: Call, tmp_path: Path
) -> None:
    (kind,) = case.keys() & ENDS.keys()
    path, out = written(case["change"]), tmp_path / "out"
    checked = call("check", path, code=ENDS[kind])
    assert case["says"] in checked.text, name
    assert kind != "advisory" or "advisory" in checked.out
    if kind != "guardrail":
        return
    assert f"Rule {case['guardrail']}, mandatory here." in checked.err
    assert case["says"] in call("render", path, "--out", out, code=1).err, "up judges alike"
    assert not out.exists()
    waiver = {"owner": "me", "reason": "so", "until": "2999-01-01"}
    waivers = [{"name": rule, "rule": rule, **waiver} for rule in (case["guardrail"], *case.get("also", ()))]
    call("check", written(case["change"] | {"environments/prod/guardrails": {"waivers": waivers}}), code=0)


def test_a_refused_mistake_is_said_with_its_line_and_a_remedy(written: Written) -> None:
    for name, case in MISTAKES.items():
        if "refused" in case:
            with pytest.raises(DefinitionError) as caught:
                read_definition(written(case["change"]))
            (problem, *_) = caught.value.problems
            assert "definition.yaml:" in str(problem), name
            assert problem.do or ":" in problem.what, name
