"""`check`: quick, and clear."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stacks.problems import _MOST_ALIKE as MOST_ALIKE
from stacks.problems import Position, Problem, advisory_text


def test_a_good_definition_is_summed_up_in_a_line(call: Callable[..., Any], definition: Path) -> None:
    ended = call("check", definition)
    assert ended.code == 0
    line = ended.out.splitlines()[0]
    assert line == f"{definition}: ok – 2 stacks (dev-lab, prod-east), 1 server, 1 model"


def test_alike_advisories_are_one_paragraph(call: Callable[..., Any], definition: Path) -> None:
    out = call("check", definition).out
    assert out.count("has no digest") == 3
    assert out.count("make pin") == 1


def test_long_paragraphs_are_cut_and_counted() -> None:
    found = [Problem(Position("f", n, 1), "", f"no {n}", "why", "do", "advisory") for n in range(MOST_ALIKE + 2)]
    assert "… and 2 more like these" in advisory_text(found)


def test_everything_that_is_wrong_is_said_at_once_and_the_exit_code_is_two(
    run: Callable[..., Any], definition: Path, edit: Callable[[str, str], None]
) -> None:
    edit("replicas: 1\n", "replicsa: 1\n")
    edit("server: small}", "server: smal}")
    ended = run("check", definition)
    assert ended.code == 2
    assert "replicas" in ended.err
    assert "Traceback" not in ended.err
    assert "nothing was written" in ended.err


def test_a_missing_file_is_one_message(run: Callable[..., Any], tmp_path: Path) -> None:
    ended = run("check", tmp_path / "nope.yaml")
    assert ended.code == 2
    assert "nope.yaml: there is no such file" in ended.err


def test_it_is_quick_because_it_loads_no_engine(run: Callable[..., Any], definition: Path) -> None:
    run("check", definition)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = run("check", definition, PYTHONPROFILEIMPORTTIME="1")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Not the time on the clock, of which other tests on this machine take their share.
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 2
    assert "pulumi" not in ended.err
