"""The block of an answer is taken by `make check` in a definition, and what that renders is what was simulated."""

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.eviction_process import SETTINGS_FILE as SETTINGS_NAME

from capacity.answers import LOADING, Answer, PlannedPool
from capacity.block import block, unfit_names
from capacity.slices import find_gpu
from components import Environment
from components.evaluate import evaluate
from rollout.definition import check_definition
from rollout.seen import Seen
from stacks.definition.mig_cuts import cuts
from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.counts import examples

from .definition import A100, tree_of, write
from .traces import trace_of

TRACE = trace_of(1, **{f"m{number}": (number + 1, 5.0, 600.0) for number in range(6)})
GPU = find_gpu("a100-80gb", [A100])
NAMES = [model.name for model in TRACE.models]
BYTES = {model.name: model.footprint_bytes for model in TRACE.models}


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """One pool or two on some slices, the larger ones first, with some of the small models pinned."""
    slices = sorted(draw(st.lists(st.sampled_from(GPU.slices), min_size=1, max_size=2)), reverse=True)
    first = draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5)) if len(slices) == 2 else {*NAMES}
    parts = [first, {*NAMES} - first][: len(slices)]
    pinned = draw(st.sets(st.sampled_from(NAMES[:2])))
    pools = (
        PlannedPool(one, draw(st.integers(1, 3)), frozenset(part), frozenset(part & pinned))
        for one, part in zip(slices, parts, strict=True)
    )
    return Answer(GPU, tuple(pools))


@examples(40)
@given(answers())
def test_what_a_definition_with_the_block_renders_is_what_was_simulated(answer: Answer) -> None:
    pasted = yaml.safe_load(block(answer, TRACE, "ondemand"))
    assert GPU.product is not None
    whole = sum(count for one, count in answer.slices.items() if not one.profile)
    cut = cuts(GPU.product, {one.profile: count for one, count in answer.slices.items() if one.profile})
    with TemporaryDirectory() as folder:
        file = write(Path(folder), tree_of(pasted["pools"], pasted["models"], [*cut, *[{}] * whole]))
        check_definition(file, Seen("check", str(file)))
        definition = read_definition(file)
    objects = evaluate(lambda: Environment("x", resolve(definition.stacks[0], definition.lock)))
    files = [each["data"].get(SETTINGS_NAME) for each in objects if each["kind"] == "ConfigMap"]
    settings = [EvictionSettings.model_validate_json(file) for file in files if file]
    said = {
        (
            each.capacity_bytes,
            each.idle_seconds,
            each.lease_seconds,
            each.wait_seconds,
            each.policy,
            frozenset((model.name, model.pinned, model.footprint_bytes) for model in each.models),
        )
        for each in settings
    }
    assert said == {
        (
            pool.capacity_bytes,
            LOADING.idle_seconds,
            LOADING.lease_seconds,
            LOADING.wait_seconds,
            LOADING.policy,
            frozenset((name, name in pool.pinned, BYTES[name]) for name in pool.models),
        )
        for pool in answer.simulated()
    }
    replicas = sorted(each["spec"]["replicas"] for each in objects if each["kind"] == "StatefulSet")
    assert replicas == sorted(pool.replicas for pool in answer.pools)


def test_models_whose_names_no_definition_takes_are_told_and_left_out() -> None:
    trace = trace_of(1, **{"a model": (1, 1.0, 600.0), "fine": (1, 1.0, 600.0)})
    answer = Answer(GPU, (PlannedPool(GPU.slices[0], 1, frozenset({"a model", "fine"})),))
    assert unfit_names(answer) == ["a model"]
    assert [model["name"] for model in yaml.safe_load(block(answer, trace, "s"))["models"]] == ["fine"]
