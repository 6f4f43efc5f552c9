"""`make plan`, as people see it: a table, a sentence, a block to paste, pictures; one clear message for a mistake."""

from pathlib import Path

import pytest
from tidegate_eviction.simulate.trace import write_trace
from typer.testing import CliRunner, Result

from capacity.__main__ import app
from capacity.plan import target_of
from stacks.command import CommandError

from .definition import pool, tree_of, write
from .traces import LARGE_AND_SMALL, trace_of

PRICES = "prices: {a100-80gb: {perHour: 7, source: a fictional list, asOf: 2026-01-01}}"  # fictional, as all here
SMALL = trace_of(1, one=(5, 2.0, 60.0), two=(1, 2.0, 60.0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace, prices and a definition that names one of its models."""
    monkeypatch.chdir(tmp_path)
    write_trace(SMALL, tmp_path / "day.csv")
    (tmp_path / "prices.yaml").write_text(PRICES, "utf-8")
    models = [{"name": "one", "server": "ondemand", "pool": "main", "footprint": "5G"}]
    write(tmp_path, tree_of([pool("2g.20gb")], models, [{"2g.20gb": 3}]))
    return tmp_path


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", "--definition", "inference.yaml", *arguments])


def test_a_plan_is_a_table_a_sentence_a_block_and_pictures(folder: Path) -> None:
    said = plan("day.csv", "--target", "98%", "--prices", "prices.yaml")
    assert said.exit_code == 0, said.stderr
    rows = {line[2:].partition("  ")[0]: line for line in said.stdout.splitlines()}
    # A seventh of a GPU for 730 hours, at 7 an hour.
    assert rows["1 × 1g.10gb"].startswith("▶")
    assert rows["1 × 1g.10gb"].split()[-2:] == ["104", "730"]
    assert rows["2 dedicated endpoints"].split()[-2:] == ["209", "1,460"]
    assert rows["today: dev-lab"].split()[-2:] == ["209", "1,460"]
    assert "dev-lab does not name 1 of 2 models" in said.stdout
    assert "at once for $730 a month; 2 dedicated endpoints would be $1,460 a month." in said.stdout
    assert "With 20 % more traffic it answers 98" in said.stdout
    assert "profile: 1g.10gb, product: NVIDIA-A100-SXM4-80GB}, replicas: 1}" in said.stdout
    assert (folder / "build/plan/plan.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "build/plan/plan.svg").read_text("utf-8")


def test_without_a_price_there_are_hours_and_no_money(folder: Path) -> None:
    (folder / "prices.yaml").write_text(PRICES.replace("a100-80gb", "l4"), "utf-8")
    said = plan("day.csv", "--target", "98%", "--prices", "prices.yaml")
    assert "no price of A100-80GB in prices.yaml: GPU-hours, no money" in said.stdout
    assert "at once for 104 GPU-hours a month; 2 dedicated endpoints would be 209 GPU-hours a month" in said.stdout
    assert "$" not in said.stdout


def test_a_target_that_nothing_meets_is_told_with_what_is_closest_and_exit_code_1(folder: Path) -> None:
    write_trace(trace_of(1, large=(50, 2.0, 600.0), small=(1, 2.0, 60.0)), folder / "large.csv")
    said = plan("large.csv", "--gpu", "l4")
    assert said.exit_code == 1
    assert "Larger than what models may take on a whole L4, and so refused: large." in said.stdout
    assert "The closest is 1 × whole GPU" in said.stdout
    assert "on up to 8 GPUs meets TARGET=99%" in said.stderr


@pytest.mark.usefixtures("folder")
def test_every_caller_is_answered_at_once_where_all_models_are_pinned() -> None:
    said = plan("day.csv", "--target", "100%", "--gpu", "l4")
    assert said.exit_code == 0, said.stderr
    assert "1 × whole GPU (all pinned) answers 100" in said.stdout
    assert said.stdout.count("pinned: true") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["day.csv", "--target", "nearly"], ["TARGET=nearly", "TARGET=99%"]),
        (["day.csv", "--target", "0%"], ["TARGET=0%", "more than 0%"]),
        (["day.csv", "--gpu", "a100"], ["no GPU 'a100'", "A100-40GB, A100-80GB, H100-80GB", "B200", "T4"]),
        (["day.csv", "--stack", "dev-lob"], ["no stack dev-lob", "dev-lab"]),
        (["day.csv", "--prices", "none.yaml"], ["none.yaml"]),
        (["bad.csv"], ["bad.csv:2:", "describes the model 'nobody'"]),
        (["none.csv"], ["none.csv", "cannot be read"]),
    ],
)
def test_a_mistake_is_one_message_and_nothing_is_simulated(
    folder: Path, arguments: list[str], words: list[str]
) -> None:
    (folder / "bad.csv").write_text("m,one,1000,2000,50\n0,nobody\n", "utf-8")
    said = plan(*arguments)
    assert said.exit_code == 2
    assert [word for word in words if word not in said.stderr] == []
    assert (said.stdout, "Traceback" in said.stderr) == ("", False)
    assert not (folder / "build").exists()


@pytest.mark.parametrize(("text", "share"), [("99%", 0.99), ("99.9 %", 0.999), ("100%", 1.0)])
def test_targets_are_said_in_per_cent(text: str, share: float) -> None:
    assert target_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0.99", "101%", "-1%", "", "nan%"])
def test_what_is_no_share_is_no_target(text: str) -> None:
    with pytest.raises(CommandError):
        target_of(text)


@pytest.mark.thorough
def test_a_mixed_answer_is_recommended_where_it_is_cheaper(folder: Path) -> None:
    write_trace(LARGE_AND_SMALL, folder / "mixed.csv.gz")
    said = plan("mixed.csv.gz", "--prices", "prices.yaml")
    assert said.exit_code == 0, said.stderr
    assert "1 × 1g.20gb (large alone) + 1 × 1g.10gb (8 models, all pinned) answers" in said.stdout
