"""`environments`: what is handed to clients."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate_contracts.environments import Environments

Call = Callable[..., Any]


def test_what_clients_are_told_is_printed_and_nothing_else(call: Call, definition: Path) -> None:
    ended = call("environments", definition)
    assert (ended.code, ended.err) == (0, "")
    told = Environments.model_validate_json(ended.out)
    assert [(item.name, [plane.name for plane in item.planes]) for item in told.environments] == [
        ("dev", ["lab"]),
        ("prod", ["east"]),
    ]
    assert "null" not in ended.out


def test_a_file_of_it_is_written_whole_and_says_so(call: Call, definition: Path, tmp_path: Path) -> None:
    file = tmp_path / "users" / "environments.json"
    ended = call("environments", definition, "--out", file)
    assert ended.code == 0
    assert str(file) in ended.out
    assert file.read_text("utf-8") == call("environments", definition).out
    assert [item.name for item in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_file_that_cannot_be_written_leaves_nothing_behind(call: Call, definition: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    ended = call("environments", definition, "--out", tmp_path / "taken")
    assert ended.code == 1
    assert "taken" in ended.err
    assert "Traceback" not in ended.err
    assert [item.name for item in tmp_path.iterdir() if item.is_file() or item.name.startswith(".")] == []


def test_promotion_goes_to_clients_as_it_is_said(
    call: Call, definition: Path, edit: Callable[[str, str], None]
) -> None:
    edit("  - name: prod\n", "  - name: prod\n    promotion: {from: dev, principals: [ci], soakHours: 1.5}\n")
    prod = json.loads(call("environments", definition).out)["environments"][1]
    assert prod["promotion"] == {
        "source": "dev",
        "principals": ["ci"],
        "groups": [],
        "separationOfDuties": False,
        "soakHours": 1.5,
    }


def test_a_definition_that_is_wrong_is_not_handed_out(
    call: Call, definition: Path, edit: Callable[[str, str], None], tmp_path: Path
) -> None:
    edit("  - name: prod\n", "  - name: prod\n    promotion: {from: dve}\n")
    ended = call("environments", definition, "--out", tmp_path / "environments.json")
    assert ended.code == 2
    assert ended.out == ""
    assert 'takes versions from an unknown environment, "dve"' in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "environments.json").exists()


def test_it_needs_no_engine(run: Call, definition: Path) -> None:
    ended = run("environments", definition, PYTHONPROFILEIMPORTTIME="1")
    assert ended.code == 0
    assert "pulumi" not in ended.err
