"""What is said when Pulumi refuses to touch a dataset."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PULUMI = """#!/bin/sh
case "$1 $2" in
"version "*) echo v3.260.0 ;;
"stack ls") echo '[]' ;;
"stack init"|"config set-all") ;;
"config --json") echo '{{}}' ;;
"up --yes") printf 'error: {said}\\n'; exit 255 ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def fake(edit: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a script in Pulumi's place."""

    def put(script: str) -> None:
        edit("{name: dev}", "{name: dev, local: true}")
        (tmp_path / "bin").mkdir()
        pulumi = tmp_path / "bin" / "pulumi"
        pulumi.write_text(script, "utf-8")
        pulumi.chmod(0o755)
        monkeypatch.setenv("PATH", f"{pulumi.parent}:/usr/bin:/bin")

    return put


@pytest.mark.parametrize(
    ("command", "before", "answer"),
    [
        *(("stack ls", "'[]'", answer) for answer in ("hello", "3", "[3]", "[{}]", '[{"name": 3}]')),
        *(("config", "'{}'", answer) for answer in ("", "[]", '{"a": 3}')),
    ],
)
def test_an_answer_that_cannot_be_understood_is_one_message(
    call: Callable[..., Any], definition: Path, fake: Callable[[str], None], command: str, before: str, answer: str
) -> None:
    fake(PULUMI.format(said="").replace(f"echo {before}", f"echo '{answer}'"))
    ended = call("up", definition, "--cluster", "kind-lab")
    assert ended.code == 1
    assert f"what `pulumi {command} --json` answers cannot be understood." in ended.err


@pytest.mark.parametrize(
    "said",
    [
        'unable to replace resource "urn:x"\\nas it is currently marked for protection. To unprotect the resource, …',
        'resource "urn:x" cannot be deleted\\nbecause it is protected. To unprotect the resource, …',
    ],
)
def test_a_protected_dataset_is_no_riddle(
    call: Callable[..., Any],
    definition: Path,
    fake: Callable[[str], None],
    said: str,
) -> None:
    fake(PULUMI.format(said=said))
    ended = call("up", definition, "--cluster", "kind-lab")
    assert ended.code == 1
    assert 'resource "urn:x"' in ended.out
    assert "add a dataset of another name and move the servers to it" in ended.err.splitlines()[-1]
