import math
import re
from pathlib import Path

import pytest
from tidegate_eviction.simulate.trace import write_trace
from typer.testing import CliRunner, Result

from cli.app import app
from rollout.definition import check_definition
from rollout.seen import CommandReport
from stacks.stack import Definition
from stacks.validate import read_definition

from .definition import pasted, pool, tree_of, write
from .traces import trace_of

PRICE = {"perHour": 7, "source": "a fictional list", "asOf": "2026-01-01"}  # fictional
SMALL = trace_of(1, one=(5, 2.0, 60.0), two=(1, 2.0, 60.0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a trace, and a definition that has a price and one of its models."""
    monkeypatch.chdir(tmp_path)
    write_trace(SMALL, tmp_path / "day.csv")
    models = [{"name": "one", "server": "ondemand", "pool": "main", "footprint": "5G"}]
    tree = tree_of([pool("2g.20gb")], models, [{"2g.20gb": 2, "1g.10gb": 3}])
    tree["dataPlanes"][0]["gpus"][0]["price"] = PRICE
    write(tmp_path, tree)
    return tmp_path


def plan(*arguments: str) -> Result:
    definition = [] if arguments[-1].endswith(".yaml") else ["inference.yaml"]
    return CliRunner().invoke(app, ["plan", "--trace", *arguments, *definition])


@pytest.mark.usefixtures("folder")
def test_a_plan_is_a_table_a_sentence_and_a_block() -> None:
    done = plan("day.csv", "--target", "98%")
    assert done.exit_code == 0, done.stderr
    rows = {line[2:].partition("  ")[0]: line for line in done.stdout.splitlines()}
    # A seventh of a GPU for 730 hours, at 7 an hour.
    assert rows["1 × 1g.10gb"].startswith("▶")
    assert rows["1 × 1g.10gb"].split()[-2:] == ["104", "730"]
    assert "find their model in memory: $730 a month." in done.stdout
    assert "Today, the pools of these models take 1 × MIG 2g.20gb (mixed), $1,460 a month." in done.stdout
    assert "Too little traffic: record at least 1,000 calls before you decide." in done.stdout
    assert "profile: 1g.10gb, product: NVIDIA-A100-SXM4-80GB}\n      replicas: 1" in done.stdout


def test_the_table_and_a_sentence_show_the_worst_served_model(folder: Path) -> None:
    """Calls of one model are refused while the other one loads."""
    write_trace(trace_of(4, busy=(5, 2.0, 60.0), slow=(5, 15.0, 600.0)), folder / "busy.csv")
    printed = plan("busy.csv", "--target", "80%").stdout
    sentence = re.search(r"Worst served is busy: (\d+) of its (\d+) calls are refused\.", printed)
    assert sentence is not None
    headings, best = (next(line for line in printed.splitlines() if mark in line) for mark in ("worst", "▶"))
    share = f"busy {int(sentence[1]) / int(sentence[2]):.1%}".replace("%", " %")
    assert best.index(share) + len(share) == headings.index("worst") + len("worst")


def after(folder: Path, done: Result) -> Definition:
    text = done.stdout.partition("run `tidegate check inference.yaml`:\n\n")[2].partition("\n\n")[0]
    definition = pasted(read_definition(folder / "inference.yaml"), text)
    file = write(folder, definition.document.tree)
    check_definition(file, CommandReport("check", str(file)))
    return definition


@pytest.mark.parametrize("strategy", ["mixed", "single", "dra"])
def test_the_printed_block_is_valid_and_is_the_simulated_one(folder: Path, strategy: str) -> None:
    main = pool("1g.10gb")
    if strategy != "mixed":
        main["placement"] |= {"kind": "dra"} if strategy == "dra" else {"strategy": "single"}
    tree = tree_of([main], [{"name": "one", "server": "ondemand", "pool": "main"}], [{"1g.10gb": 7}])
    tree["dataPlanes"][0]["gpus"][0]["mig"]["strategy"] = strategy
    write(folder, tree)
    done = plan("day.csv", "--target", "98%")
    (stack,) = after(folder, done).stacks
    pools = {each.name: each for _, _, each in stack.pools()}
    assert (getattr(pools["s-1g-10gb"].placement, "profile", None), pools["s-1g-10gb"].replicas) == ("1g.10gb", 1)
    models = {each.name: (each.pool, each.footprint) for each in stack.platform.models}
    assert models == {"one": ("s-1g-10gb", "5000M"), "two": ("s-1g-10gb", "1000M")}
    assert (
        "Its slices need at least 1 × A100-80GB, with 1g.10gb in `mig.slices` of the data plane's `gpus`."
        in done.stdout
    )


def test_every_data_plane_accepts_the_printed_block(folder: Path) -> None:
    now = {"name": "one", "server": "ondemand", "pool": "s-1g-10gb", "pinned": True, "idleSeconds": 900}
    tree = tree_of([pool("2g.20gb", "s-1g-10gb")], [now], [{"2g.20gb": 1, "1g.10gb": 2}])
    tree["dataPlanes"].append(tree["dataPlanes"][0] | {"name": "east"})
    write(folder, tree)
    lines = [f"m,{name},{size},2050,50" for name, size in (("one", 5000), ("tiny", 0.5), ("a b", 1))]
    calls = [f"{at * 60_000},{name}" for at in range(60) for name in ("one", "tiny", "a b")]
    (folder / "day.csv").write_text("\n".join([*lines, *calls]), "utf-8")
    done = plan("day.csv")
    assert "The change below applies to 2 (lab, east), each at that cost." in done.stdout
    assert "names that are not valid in a definition: a b." in done.stdout
    for stack in after(folder, done).stacks:
        pools = {each.name: getattr(each.placement, "profile", None) for _, _, each in stack.pools()}
        assert pools == {"s-1g-10gb": "2g.20gb", "s-1g-10gb-2": "1g.10gb"}
        models = {each.name: (each.pool, each.pinned, each.idle_seconds) for each in stack.platform.models}
        assert models == dict.fromkeys(["one", "tiny"], ("s-1g-10gb-2", False, None))


def test_the_default_gpu_is_the_inventorys_or_an_a100_of_80_gb(folder: Path) -> None:
    tree = tree_of([pool("2g.20gb")], [], [{"2g.20gb": 3}])
    tree["servers"][0]["pools"][0]["placement"] = {"kind": "cpu"}
    tree["servers"][0]["pools"][0]["loading"]["capacity"] = "1Gi"
    for gpus, name in (
        ([], "A100-80GB"),
        ([{"nodes": 1, "product": "NVIDIA-L4", "perNode": 1}], "L4"),
        ([{"nodes": 1, "product": product, "perNode": 1} for product in ("Some-GPU", "NVIDIA-H200")], "H200-141GB"),
    ):
        tree["dataPlanes"][0]["gpus"] = gpus
        write(folder, tree)
        assert f"The inventory has no price of {name}" in plan("day.csv", "--target", "90%").stdout


def test_without_a_price_there_are_hours_and_no_money(folder: Path) -> None:
    write(folder, tree_of([pool("2g.20gb") | {"loading": {"mode": "preload"}}], [], [{"2g.20gb": 3}]))
    done = plan("day.csv", "--target", "98%")
    assert "no price of A100-80GB, so the table has only GPU-hours" in done.stdout
    assert "find their model in memory: 104 GPU-hours a month." in done.stdout
    assert "$" not in done.stdout
    assert "ondemand-2 is a new server: also set its `image` and `repository`" in done.stdout


def test_an_unreachable_target_shows_the_closest_answer_and_exits_with_1(folder: Path) -> None:
    """Each GPU holds one of nine models."""
    write_trace(trace_of(1, **{f"m{number}": (15, 2.0, 600.0) for number in range(9)}), folder / "many.csv")
    done = plan("many.csv", "--gpu", "l4")
    assert done.exit_code == 1
    assert "The closest is 8 × whole GPU" in done.stdout
    assert "with up to 8 GPUs meets --target 99%" in done.stderr


def test_a_called_model_that_no_gpu_holds_ends_the_plan_before_any_simulation(folder: Path) -> None:
    write_trace(trace_of(1, large=(50, 2.0, 600.0), small=(1, 2.0, 60.0)), folder / "large.csv")
    refused = plan("large.csv", "--gpu", "l4")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "a whole L4 is too small for large. Plan for a larger GPU" in refused.stderr


def test_a_plan_leaves_out_a_model_that_no_gpu_holds_and_nothing_calls(folder: Path) -> None:
    write_trace(trace_of(1, one=(5, 2.0, 60.0), idle=(100, 2.0, math.inf)), folder / "idle.csv")
    planned = plan("idle.csv")
    assert planned.exit_code == 0, planned.stderr
    assert "nothing calls and that do not fit on a whole A100-80GB: idle." in planned.stdout
    assert [model.name for model in after(folder, planned).stacks[0].platform.models] == ["one"]


@pytest.mark.usefixtures("folder")
def test_all_requests_are_warm_if_all_models_fit_because_first_loads_are_excluded() -> None:
    done = plan("day.csv", "--target", "100%", "--gpu", "l4")
    assert done.exit_code == 0, done.stderr
    assert "With 1 × whole GPU, 100" in done.stdout
    assert "The definition has no L4. Set --gpu <node label" in done.stdout
    assert "The first load of each model is not counted" in done.stdout


def test_a_plan_names_the_timeout_to_raise_if_a_load_takes_longer(folder: Path) -> None:
    write_trace(trace_of(1, one=(5, 90.0, 600.0), two=(1, 2.0, 600.0)), folder / "slow.csv")
    done = plan("slow.csv", "--target", "90%")
    assert "Planned pools have `waitSeconds: 59`, because the longest load takes 90 s." in done.stdout
    assert "`proxy.timeouts.requestSeconds` is 60, too short for that load: increase it first." in done.stdout
    assert "waitSeconds: 59}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["day.csv", "--target", "nearly"], ["--target nearly", "--target 99%"]),
        (["day.csv", "--target", "0%"], ["--target 0%", "more than 0%"]),
        (["day.csv", "--target", "101%"], ["--target 101%", "at most 100%"]),
        (["day.csv", "--gpu", "a100"], ["no GPU 'a100'", "A100-40GB, A100-80GB, H100-80GB", "B200", "T4"]),
        (["day.csv", "--stack", "dev-lob"], ["no stack dev-lob", "dev-lab"]),
        (["day.csv", "--stack", ""], ["no stack"]),
        (["day.csv", "none.yaml"], ["none.yaml: there is no such file"]),
        (["day.csv", "some.yaml"], ['unknown key "prices"', '"servers" is missing']),
        ([""], ["Add the trace", "tidegate plan --trace day.csv.gz"]),
        (["."], ["Add the trace"]),
        (["build"], ["build: the trace cannot be read"]),
        (["empty.csv"], ["empty.csv: the trace has no requests"]),
        (["uncalled.csv"], ["uncalled.csv: the trace has no requests"]),
        (["bad.csv"], ["bad.csv:2:", "describes the model 'ghost'"]),
        (["none.csv"], ["none.csv", "cannot be read", "Run `tidegate trace` to record one"]),
    ],
)
def test_a_mistake_is_one_message_and_nothing_simulated(folder: Path, arguments: list[str], words: list[str]) -> None:
    (folder / "bad.csv").write_text("m,one,1000,2000,50\n0,ghost\n", "utf-8")
    (folder / "empty.csv").touch()
    (folder / "uncalled.csv").write_text("m,one,1000,2000,50\n", "utf-8")
    (folder / "some.yaml").write_text("prices: {a100-80gb: 5}\n", "utf-8")
    done = plan(*arguments)
    assert done.exit_code == 2
    assert [word for word in words if word not in done.stderr] == []
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)
    assert not (folder / "build").exists()
