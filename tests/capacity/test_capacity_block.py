"""The block of an answer, pasted into a definition: `tidegate check` takes it, and it renders what was simulated."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.eviction_process import SETTINGS_FILE
from tidegate_eviction.simulate.trace import Trace

from capacity.answers import LOADING, Answer, PlannedPool, with_footprints
from capacity.block import Block, block, fitting
from capacity.changed import pasted, refusals
from capacity.slices import GpuSlice, find_gpu
from capacity.today import footprints
from components import Environment
from components.evaluate import evaluate
from rollout.definition import check_definition
from rollout.seen import Seen
from stacks.command import CommandError
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from stacks.validate import read_definition
from tests.counts import examples

from .definition import A100, Tree, pool, tree_of, write
from .traces import trace_of

SHIPPED = Path(__file__).parents[2] / "stacks/inference.yaml"
TRACE = trace_of(1, **{f"m{number}": (number + 1, 5.0, 600.0) for number in range(6)})
GPU = find_gpu("a100-80gb", [A100])
WHO = ": raise it with whoever pays, or take fewer"
NAMES = [model.name for model in TRACE.models]
Said = tuple[int, float, float, float, str, frozenset[tuple[str, bool, int | None]]]


def one(profile: str) -> GpuSlice:
    return next(each for each in GPU.slices if each.profile == profile)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """One pool or two on some slices, the larger ones first, with some of the small models pinned."""
    slices = sorted(draw(st.lists(st.sampled_from(GPU.slices), min_size=1, max_size=2)), reverse=True)
    first = draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5)) if len(slices) == 2 else {*NAMES}
    parts = [first, {*NAMES} - first][: len(slices)]
    pinned = draw(st.sets(st.sampled_from(NAMES[:2])))
    pools = (
        PlannedPool(each, draw(st.integers(1, 3)), frozenset(part), frozenset(part & pinned))
        for each, part in zip(slices, parts, strict=True)
    )
    return Answer(GPU, tuple(pools), LOADING.model_copy(update={"wait_seconds": draw(st.sampled_from([20, 45]))}))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A definition of two environments on one data plane, whose pools have models of the trace and others."""
    names = draw(st.lists(st.sampled_from([*NAMES, "other", "another"]), unique=True))
    pools = [pool("2g.20gb", "main"), pool("1g.20gb", "s-1g-10gb")][: draw(st.integers(1, 2))]
    models: list[Tree] = []
    for name in names:
        models.append({"name": name, "server": "ondemand", "idleSeconds": draw(st.sampled_from([60, 900]))})
        if len(pools) == 2:
            models[-1]["pool"] = draw(st.sampled_from(pools))["name"]
        models[-1]["pinned"] = name == draw(st.sampled_from(["m0", "m1", "other"]))
    tree = tree_of(pools, models, [{"2g.20gb": 2, "1g.20gb": 2}])
    datasets = [{"name": "models", "path": "/export/trial"}]
    tree["environments"].append({"name": "trial", "proxy": {"replicas": 1}, "datasets": datasets})
    tree["dataPlanes"][0]["environments"].append("trial")
    return tree


def after(definition: Definition, made: Block) -> Definition:
    """Return the definition with the block pasted, as a file that `tidegate check` has taken."""
    with TemporaryDirectory() as folder:
        file = write(Path(folder), pasted(definition, made.text).document.tree)
        check_definition(file, Seen("check", str(file)))
        return read_definition(file)


def rendered(definition: Definition, stack: Stack) -> Iterator[EvictionSettings]:
    objects = evaluate(lambda: Environment("x", resolve(stack, definition.lock)))
    files = [each["data"].get(SETTINGS_FILE) for each in objects if each["kind"] == "ConfigMap"]
    yield from (EvictionSettings.model_validate_json(file) for file in files if file)


def own_times(settings: EvictionSettings) -> list[str]:
    """Return the models with an idle time of their own, of which no simulation of a pool knows."""
    return [model.name for model in settings.models if model.idle_seconds is not None]


def said(settings: EvictionSettings) -> Said:
    assert own_times(settings) == []
    models = frozenset((model.name, model.pinned, model.footprint_bytes) for model in settings.models)
    times = settings.idle_seconds, settings.lease_seconds, settings.wait_seconds
    return settings.capacity_bytes, *times, settings.policy, models


def simulated(answer: Answer, trace: Trace) -> set[Said]:
    size = {model.name: model.footprint_bytes for model in trace.models}
    times = LOADING.idle_seconds, LOADING.lease_seconds, answer.loading.wait_seconds
    return {
        (each.capacity_bytes, *times, LOADING.policy, frozenset((n, n in each.pinned, size[n]) for n in each.models))
        for each in answer.simulated()
    }


@examples(20)
@given(answers(), trees())
def test_what_a_definition_with_the_block_renders_is_what_was_simulated(answer: Answer, tree: Tree) -> None:
    with TemporaryDirectory() as folder:
        definition = read_definition(write(Path(folder), tree))
    stack = definition.stacks[0]
    made = block(definition, stack, answer, TRACE)
    assert refusals(definition, made.text) == []
    new = after(definition, made)
    of_trace = [each for each in rendered(new, new.stacks[0]) if {model.name for model in each.models} & {*NAMES}]
    assert {said(each) for each in of_trace} == simulated(answer, TRACE)
    pool_of = {model.name: model.pool or "" for model in new.stacks[0].platform.models}
    replicas = {pool.name: pool.replicas for server in new.stacks[0].platform.servers for pool in server.pools}
    assert sorted(replicas[name] or 0 for name in {pool_of[each] for each in NAMES}) == sorted(
        each.replicas for each in answer.pools
    )
    # The other environment stays as it was.
    assert [*rendered(new, new.stacks[1])] == [*rendered(definition, definition.stacks[1])]


def of_prod_east(*small: str) -> tuple[Definition, Answer, Trace, Block]:
    """Return the shipped definition, two slices for these small models and its largest one, and their block."""
    definition = read_definition(SHIPPED)
    stack = next(stack for stack in definition.stacks if stack.name == "prod-east")
    trace = trace_of(1, **{"demand-forecast": (14, 40.0, 900.0)}, **dict.fromkeys(small, (1, 2.0, 60.0)))
    trace = with_footprints(trace, footprints(stack))
    large = PlannedPool(one("1g.20gb"), 1, frozenset({"demand-forecast"}), frozenset({"demand-forecast"}))
    answer = Answer(GPU, (large, PlannedPool(one("1g.10gb"), 1, frozenset(small))))
    return definition, answer, trace, block(definition, stack, answer, trace)


def test_the_shipped_definition_takes_the_block_of_its_own_models_on_both_of_its_data_planes() -> None:
    definition, answer, trace, made = of_prod_east("language-id", "invoice-ocr", "new")
    assert refusals(definition, made.text) == []
    new = after(definition, made)
    for stack in new.stacks:
        is_planned = {said(each) for each in rendered(new, stack) if not own_times(each)} == simulated(answer, trace)
        assert is_planned == (stack.environment.name == "prod")
    words = "\n".join(made.said)
    assert "It replaces ondemand/small, ondemand/large (with its warm window nightly-forecast)." in words
    assert "GPUs of east, west:\n  To drain and cut again: 1 of 2 nodes." in words
    assert [plane["name"] for plane in yaml.safe_load(made.text)["dataPlanes"]] == ["east", "west"]


def test_a_pool_with_further_models_stays_and_what_guardrails_say_of_both_is_told() -> None:
    definition, _, _, made = of_prod_east("language-id", "fraud-score")
    words = "\n".join(made.said)
    assert "It replaces ondemand/large (with its warm window nightly-forecast)." in words
    assert "ondemand/small stays, for it has invoice-ocr too, which the trace does not call" in words
    assert "preload/main stays, for it preloads what lies in its folder, churn too" in words
    assert refusals(definition, made.text) == [
        f"{stack} takes 7 GPU devices, and its guardrails.gpuSlices is 6{WHO}" for stack in ("prod-east", "prod-west")
    ]
    with pytest.raises(CommandError, match="gpu-slices-stay-under-their-ceiling"):
        after(definition, made)


@pytest.mark.parametrize(
    ("budget", "price", "words"),
    [
        (700, 7, ["dev-lab costs $1,460 a month, and its guardrails.monthlyBudget is $700" + WHO]),
        (1460, 7, []),
        (9, None, ["dev-lab costs"]),
    ],
)
def test_a_budget_that_would_not_do_is_told(tmp_path: Path, budget: int, price: int | None, words: list[str]) -> None:
    tree = tree_of([pool("1g.10gb")], [], [{"1g.10gb": 2}])
    said_of_it = {"price": {"perHour": price, "source": "fictional", "asOf": "2026-01-01"}} if price else {}
    tree["dataPlanes"][0]["gpus"][0] |= said_of_it
    tree["guardrails"] = {"monthlyBudget": budget}
    definition = read_definition(write(tmp_path, tree))
    trace = trace_of(1, new=(1, 2.0, 60.0))
    answer = Answer(GPU, (PlannedPool(one("1g.10gb"), 1, frozenset({"new"})),))
    made = block(definition, definition.stacks[0], answer, trace)
    told = refusals(definition, made.text)
    assert len(told) == len(words)
    assert all(line.startswith(word) for line, word in zip(told, words, strict=True))


def cut_of(tree: Tree, answer: Answer, folder: Path) -> tuple[str, list[Any]]:
    definition = read_definition(write(folder, tree))
    made = block(definition, definition.stacks[0], answer, TRACE)
    assert refusals(definition, made.text) == []
    planes = yaml.safe_load(made.text).get("dataPlanes", [])
    return "\n".join(made.said), [each["gpus"] for each in planes]


ON_TWO = Answer(GPU, (PlannedPool(one("3g.40gb"), 2, frozenset(NAMES)),))


def test_where_slices_are_there_nothing_is_cut(tmp_path: Path) -> None:
    said_now, gpus = cut_of(tree_of([pool("1g.10gb")], [], [{"3g.40gb": 2}, {"1g.10gb": 7}]), ON_TWO, tmp_path)
    assert gpus == []
    assert "No node is to be cut anew." in said_now


def test_where_there_are_too_few_gpus_it_is_told_how_many_more_and_they_are_in_the_block(tmp_path: Path) -> None:
    said_now, gpus = cut_of(tree_of([pool("1g.10gb")], [], [{"1g.10gb": 7}]), ON_TWO, tmp_path)
    assert f"It takes 1 node more of {A100} with 1 each" in said_now
    assert sum(group["nodes"] for group in gpus[0]) == 2


def test_where_there_is_no_inventory_the_fewest_gpus_are_told_with_their_cuts(tmp_path: Path) -> None:
    tree = tree_of(
        [{"name": "main", "loading": {"mode": "on-demand", "capacity": "1Gi"}, "placement": {"kind": "cpu"}}], [], []
    )
    said_now, gpus = cut_of(tree, ON_TWO, tmp_path)
    assert f"GPUs of lab:\n  It takes 1 node more of {A100} with 1 each: 1 of 2 × 3g.40gb." in said_now
    assert gpus == [
        [{"nodes": 1, "product": A100, "perNode": 1, "mig": {"strategy": "mixed", "slices": {"3g.40gb": 2}}}]
    ]


@pytest.mark.parametrize("strategy", ["single", "dra"])
def test_slices_are_asked_for_as_the_inventory_hands_them_out(tmp_path: Path, strategy: str) -> None:
    here = {"single": {"kind": "mig", "strategy": "single", "product": A100}, "dra": {"kind": "dra", "product": A100}}
    main = pool("1g.10gb") | {"placement": {"profile": "1g.10gb", **here[strategy]}}
    tree = tree_of([main], [], [{"1g.10gb": 7}, {"1g.10gb": 7}])
    for group in tree["dataPlanes"][0]["gpus"]:
        group["mig"]["strategy"] = strategy
    (tmp_path / "new").mkdir()
    gpu = find_gpu("a100-80gb", [A100])
    answer = Answer(type(gpu)(gpu.name, gpu.label, gpu.product, gpu.slices, strategy), ON_TWO.pools)  # type: ignore[arg-type]
    said_now, gpus = cut_of(tree, answer, tmp_path)
    assert "To drain and cut again: 1 of 2 nodes" in said_now
    assert {"3g.40gb": 2} in [group["mig"]["slices"] for group in gpus[0]]


def test_of_a_gpu_whose_label_is_not_known_the_cuts_are_told_and_what_to_say(tmp_path: Path) -> None:
    gpu = find_gpu("h100-80gb", [A100])
    answer = Answer(gpu, (PlannedPool(gpu.slices[0], 2, frozenset(NAMES)),))
    definition = read_definition(write(tmp_path, tree_of([pool("1g.10gb")], [], [{"1g.10gb": 7}])))
    made = block(definition, definition.stacks[0], answer, TRACE)
    assert "dataPlanes" not in made.text
    assert "The definition has no H100-80GB: say --gpu <their node label" in made.said[-1]
    assert any("of H100-80GB with 1 each: 1 of" in line for line in made.said)


def test_a_server_is_made_up_where_none_loads_on_demand_and_make_check_asks_where_its_models_lie(
    tmp_path: Path,
) -> None:
    tree = tree_of([pool("1g.10gb") | {"loading": {"mode": "preload"}}], [], [{"1g.10gb": 7}])
    definition = read_definition(write(tmp_path, tree))
    made = block(definition, definition.stacks[0], ON_TWO, TRACE)
    assert {model["server"] for model in yaml.safe_load(made.text)["environments"][0]["models"]} == {"ondemand-2"}
    assert any("repository" in why or "missing" in why for why in refusals(definition, made.text))


def test_models_whose_names_no_definition_takes_are_called_otherwise_in_all_that_follows() -> None:
    trace = trace_of(
        1, **{"a model": (1, 1.0, 600.0), "a_model": (1, 1.0, 600.0), "-x": (1, 1.0, 600.0), "m" * 200: (1, 1.0, 9.0)}
    )
    renamed, how = fitting(trace)
    assert [model.name for model in renamed.models] == ["a_model-2", "a_model", "_x", "m" * 122]
    assert [*how] == ["a model", "-x", "m" * 200]
    assert (renamed.seconds, renamed.which) == (trace.seconds, trace.which)
