import json
import re
import shlex
from pathlib import Path

import pytest
from tidegate_eviction.__main__ import app, capacity_bytes
from tidegate_eviction.policies.registry import BUILT_IN
from tidegate_eviction.simulate.trace import SimulationError, write_trace
from typer.testing import CliRunner, Result

from ..policies import hostile
from .plain import trace_of

SMALL = trace_of(
    [(float(number), number * number // 3 % 5) for number in range(60)],
    *((1_000_000 * size, 1.0 + size, 0.25) for size in range(1, 6)),
)
"""15 MB of models."""


ROOT = Path(__file__).resolve().parents[4]
IDLE = "--policy", "lru-idle", "--capacity", "40%"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_trace(SMALL, tmp_path / "small.csv")
    return tmp_path / "small.csv"


def run(command: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def rows(*arguments: object) -> dict[str, dict[str, float]]:
    result = run("simulate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.stdout)["rows"]}


def test_one_policy_is_printed_in_one_line(small: Path) -> None:
    result = run("simulate", "--trace", small, "--capacity", "8M", "--policy", "lru-idle")
    assert result.exit_code == 0, result.output
    assert "60 requests to 5 models" in result.stdout
    assert "53% of all models" in result.stdout
    for heading in ("hits", "cold loads", "loading", "busy", "evictions", "wait p50", "wait p95", "wait p99"):
        assert heading in result.stdout
    assert len([line for line in result.stdout.splitlines() if line.startswith("lru-idle")]) == 1


def test_with_all_files_near_less_is_lost(small: Path) -> None:
    options = ("--trace", small, "--capacity", "40%", "--policy", "lru-idle", "--wait-seconds", 30, "--idle-seconds", 0)
    far, near = (rows(*options, *tier)["lru-idle"] for tier in ((), ("--tier", "100%", "--tier-speedup", 4)))
    assert near["lost_seconds"] < far["lost_seconds"]


def test_the_day_in_the_readme_has_the_stated_results(tmp_path: Path) -> None:
    text = (ROOT / "docs/simulator.md").read_text("utf-8").partition("a generated day of 20 models")[2]
    block = text.partition("```sh\n")[2].partition("```")[0].replace("\\\n", " ")
    made, played = (
        line.removeprefix("python -m tidegate_eviction ").replace("zoo.csv.gz", str(tmp_path / "zoo.csv.gz"))
        for line in block.splitlines()
    )
    assert run(*shlex.split(made)).exit_code == 0
    result = run(*shlex.split(played), "--json")
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)["rows"]
    assert (row["requests"], row["busy"], row["too_large"]) == (17_919, 0, 0)
    assert round(100 * row["hits"] / row["requests"]) == 96
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    day = readme[readme.index("20 models") :][:200]
    assert {"20", "60 %", "17,919", "96 %"} <= {*re.findall(r"[\d,]*\d(?: %)?", day)}, day


def test_a_custom_policy_is_simulated_by_name_and_its_failures_are_reported(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.install(tmp_path / "package", monkeypatch, failing="failing", most="most")
    options = ("--trace", small, "--capacity", "8M", "--idle-seconds", 0)
    found = rows(*options, "--policy", "most", "--compare")
    assert found["most"]["evictions"] > found["lru-idle"]["evictions"], "it chooses more than is needed"
    assert found["most"]["policy_failures"] == 0
    result = run("simulate", *options, "--policy", "failing", "--compare")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"failing failed at \d+ choices, .* first failure: KeyError: 'no such model'", result.stdout, re.DOTALL
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--capacity", "40%"), "Set --policy"),
        (("--policy", "lru-idle"), "--capacity is missing"),
        (("--policy", "lru-idle", "--capacity", "much"), "--capacity much is not a size"),
        (("--policy", "lur", "--capacity", "40%"), 'there is no policy "lur"'),
        ((*IDLE, "--wait-seconds", "inf"), "--wait-seconds inf"),
        ((*IDLE, "--lease-seconds", "1e-9"), "--lease-seconds"),
        ((*IDLE, "--replicas", "0"), "--replicas"),
        ((*IDLE, "--tier", "large"), "--tier large is not a size"),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(small: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("simulate", "--trace", small, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("40%", 6_000_000), ("1.5%", 225_000), ("9663676416", 9663676416), ("9Gi", 9 << 30), ("9GiB", 9 << 30),
     ("500M", 500_000_000), ("500 MB", 500_000_000), ("1.5k", 1500), ("2TB", 2 * 10**12)],
)  # fmt: skip
def test_capacities_are_read_as_people_write_them(text: str, size: int) -> None:
    assert capacity_bytes(text, SMALL) == size


@pytest.mark.parametrize("text", ["0", "-5", "0%", "-1%", "nan%", "%", "i", "5Xi", "1e9", "٣M", "99999999999999T", " "])
def test_an_invalid_capacity_is_refused(text: str) -> None:
    with pytest.raises(SimulationError, match="Set it to bytes"):
        capacity_bytes(text, SMALL)


def test_a_generated_zoo_is_simulated_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "zoo.csv.gz"
    made = run("generate", "--out", file, "--models", 25, "--requests", 400, "--seed", 3)
    assert made.exit_code == 0, made.output
    assert "25 models" in made.stdout
    before = file.read_bytes()
    run("generate", "--out", file, "--models", 25, "--requests", 400, "--seed", 3)
    assert file.read_bytes() == before
    found = rows("--trace", file, "--capacity", "40%", "--compare", "--idle-seconds", 0)
    assert list(found) == [*BUILT_IN]
    assert len({row["requests"] for row in found.values()}) == 1
    assert 0 < found["cost-aware"]["load_seconds"] < found["lru-idle"]["load_seconds"]


@pytest.mark.parametrize(
    "wrong", [("--models", 0), ("--hours", "nan"), ("--zipf", -1), ("--requests", 0), ("--nightly", 2)]
)
def test_an_invalid_zoo_is_refused(tmp_path: Path, wrong: tuple[str, object]) -> None:
    made = run("generate", "--out", tmp_path / "zoo.csv", *wrong)
    assert (made.exit_code, made.stdout, [*tmp_path.iterdir()]) == (2, "", [])
