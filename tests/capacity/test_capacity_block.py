"""The block of an answer, pasted into a definition: `tidegate check` takes it, and it renders what was simulated."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.eviction_process import SETTINGS_FILE
from tidegate_eviction.simulate.trace import Trace

from capacity.answers import LOADING, Answer, with_footprints
from capacity.block import DefinitionPatch, definition_patch
from capacity.plan import footprints
from capacity.slices import GpuSlice, find_gpu
from components import Environment
from components.evaluate import evaluate
from rollout.definition import check_definition
from rollout.seen import CommandReport
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from stacks.validate import read_definition
from tests.counts import examples

from .definition import A100, Tree, pasted, pool, tree_of, write
from .traces import trace_of

SHIPPED = Path(__file__).parents[2] / "stacks/inference.yaml"
TRACE = trace_of(1, **{f"m{number}": (number + 1, 5.0, 600.0) for number in range(6)})
GPU = find_gpu("a100-80gb", [A100])
NAMES = [model.name for model in TRACE.models]
Said = tuple[int, float, float, float, str, frozenset[tuple[str, bool, int | None]]]


def one(profile: str) -> GpuSlice:
    return next(each for each in GPU.slices if each.profile == profile)


def answers() -> st.SearchStrategy[Answer]:
    """Some slices of any size, for all models of the trace."""
    waits = st.sampled_from([20, 45]).map(lambda wait: LOADING.model_copy(update={"wait_seconds": wait}))
    return st.builds(Answer, st.just(GPU), st.sampled_from(GPU.slices), st.integers(1, 3), waits)


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
    tree = tree_of(pools, models, [{one.profile: GPU.most(one)} if one.profile else {} for one in GPU.slices])
    for group in tree["dataPlanes"][0]["gpus"]:
        group["nodes"] = 9  # so that whatever is drawn fits
    datasets = [{"name": "models", "path": "/export/trial"}]
    tree["environments"].append({"name": "trial", "proxy": {"replicas": 1}, "datasets": datasets})
    tree["dataPlanes"][0]["environments"].append("trial")
    return tree


def after(definition: Definition, made: DefinitionPatch) -> Definition:
    """Return the definition with the block pasted, as a file that `tidegate check` has taken."""
    with TemporaryDirectory() as folder:
        file = write(Path(folder), pasted(definition, made.text).document.tree)
        check_definition(file, CommandReport("check", str(file)))
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


def simulated(answer: Answer, trace: Trace) -> Said:
    times = LOADING.idle_seconds, LOADING.lease_seconds, answer.loading.wait_seconds
    models = frozenset((model.name, False, model.footprint_bytes) for model in trace.models)
    return answer.setting.capacity_bytes, *times, LOADING.policy, models


@examples(20)
@given(answers(), trees())
def test_what_a_definition_with_the_block_renders_is_what_was_simulated(answer: Answer, tree: Tree) -> None:
    with TemporaryDirectory() as folder:
        definition = read_definition(write(Path(folder), tree))
    stack = definition.stacks[0]
    new = after(definition, definition_patch(stack, answer, TRACE))
    (of_trace,) = (each for each in rendered(new, new.stacks[0]) if {model.name for model in each.models} & {*NAMES})
    assert said(of_trace) == simulated(answer, TRACE)
    pool_of = {model.name: model.pool or "" for model in new.stacks[0].platform.models}
    replicas = {pool.name: pool.replicas for server in new.stacks[0].platform.servers for pool in server.pools}
    assert [replicas[name] for name in {pool_of[each] for each in NAMES}] == [answer.replicas]
    # The other environment stays as it was.
    assert [*rendered(new, new.stacks[1])] == [*rendered(definition, definition.stacks[1])]


def of_prod_east(*called: str) -> tuple[Definition, Answer, Trace, DefinitionPatch]:
    """Return the shipped definition, a slice for these models of it, and the block."""
    definition = read_definition(SHIPPED)
    stack = next(stack for stack in definition.stacks if stack.name == "prod-east")
    trace = with_footprints(trace_of(1, **dict.fromkeys(called, (1, 2.0, 60.0))), footprints(stack))
    answer = Answer(GPU, one("3g.40gb"), 1)
    return definition, answer, trace, definition_patch(stack, answer, trace)


def test_the_shipped_definition_takes_the_block_of_its_own_models_on_both_of_its_data_planes() -> None:
    definition, answer, trace, made = of_prod_east("demand-forecast", "language-id", "invoice-ocr", "new")
    new = after(definition, made)
    for stack in new.stacks:
        is_planned = simulated(answer, trace) in [said(each) for each in rendered(new, stack) if not own_times(each)]
        assert is_planned == (stack.environment.name == "prod")
    words = "\n".join(made.said)
    assert "It replaces ondemand/small, ondemand/large." in words
    assert "Its slices need 1 × A100-80GB at least." in words


def test_a_pool_with_further_models_stays() -> None:
    *_, made = of_prod_east("demand-forecast", "language-id", "fraud-score")
    words = "\n".join(made.said)
    assert "It replaces ondemand/large." in words
    assert "ondemand/small stays, for it has invoice-ocr too, which the trace does not call" in words
    assert "preload/main stays, for it preloads what lies in its folder, churn too" in words


ON_TWO = Answer(GPU, one("3g.40gb"), 2)


@pytest.mark.parametrize("strategy", ["single", "dra"])
def test_slices_are_asked_for_as_the_inventory_hands_them_out(tmp_path: Path, strategy: str) -> None:
    here = {"single": {"kind": "mig", "strategy": "single", "product": A100}, "dra": {"kind": "dra", "product": A100}}
    main = pool("3g.40gb") | {"placement": {"profile": "3g.40gb", **here[strategy]}}
    tree = tree_of([main], [], [{"3g.40gb": 2}])
    tree["dataPlanes"][0]["gpus"][0]["mig"]["strategy"] = strategy
    definition = read_definition(write(tmp_path, tree))
    answer = replace(ON_TWO, gpu=replace(GPU, strategy=strategy), replicas=1)  # type: ignore[arg-type]
    after(definition, definition_patch(definition.stacks[0], answer, TRACE))


def test_of_a_gpu_whose_label_is_not_known_it_is_told_what_to_say(tmp_path: Path) -> None:
    gpu = find_gpu("h100-80gb", [A100])
    answer = Answer(gpu, gpu.slices[0], 2)
    definition = read_definition(write(tmp_path, tree_of([pool("1g.10gb")], [], [{"1g.10gb": 7}])))
    made = definition_patch(definition.stacks[0], answer, TRACE)
    assert "The definition has no H100-80GB: say --gpu <their node label" in made.said[-1]


def test_a_server_is_made_up_where_none_loads_on_demand(tmp_path: Path) -> None:
    tree = tree_of([pool("1g.10gb") | {"loading": {"mode": "preload"}}], [], [{"1g.10gb": 7}])
    definition = read_definition(write(tmp_path, tree))
    made = definition_patch(definition.stacks[0], ON_TWO, TRACE)
    assert {model["server"] for model in yaml.safe_load(made.text)["environments"][0]["models"]} == {"ondemand-2"}
