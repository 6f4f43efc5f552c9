"""`tidegate plan`: the number, size and price of slices for the requests of a trace, and the effect on callers."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from tidegate_eviction.simulate.report import about, console
from tidegate_eviction.simulate.trace import SimulationError, Trace, read_trace

from stacks import devices
from stacks.command import FAILED, WRONG_INPUT, CommandError, chosen_stacks, tidegate
from stacks.definition.base import LEAST_BYTES
from stacks.definition.gpu_products import gpu_product
from stacks.definition.mig_cuts import fewest_gpus
from stacks.definition.models import MODEL_NAME
from stacks.definition.money import money
from stacks.definition.placement import GpuNodes
from stacks.definition.pools import OnDemand
from stacks.definition.prices import Price
from stacks.definition.proxy import Timeouts
from stacks.problems import count_of, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .answers import LOADING, MOST_WAIT_SECONDS, Answer, Row, best, loading_for, pool_tree, target_of, too_large
from .lines import percent, table, too_few
from .overlay import laid_over, overlay_text, place_of, size_text
from .search import MOST_GPUS, Search
from .simulations import MOST_REFUSED, only
from .slices import DEFAULT_GPU, Gpu, find_gpu, gpu_hours, price_of


@dataclass(frozen=True)
class _Basis:
    """The inputs of a plan."""

    definition: Definition
    trace: Trace
    gpu: Gpu
    target: float
    inventory: Sequence[GpuNodes]
    stack: Stack | None
    """The stack to plan for. None if the definition has none."""
    loading: OnDemand
    """Loading settings of planned pools."""
    left_out: Sequence[str] = ()
    """Models that nothing calls and that do not fit on a whole GPU."""

    @property
    def price(self) -> Price | None:
        return price_of(self.inventory, self.gpu.label or "")

    def cost(self, answer: Answer) -> str:
        hours = gpu_hours(answer.share)
        if self.price:
            return f"{money(hours * self.price.per_hour, self.price.currency)} a month"
        return f"{hours:,.0f} GPU-hours a month"


def make_plan(trace: Path, definition: Path, target: str, gpu: str | None, stack: str | None) -> None:
    """Search and print the result. Raise CommandError if no answer meets the target."""
    basis = _basis(trace, definition, target, gpu, stack)
    rows = Search(basis.trace, basis.gpu, basis.target, basis.loading).rows()
    rows.sort(key=lambda row: (row.answer.share, row.figures.share_warm))
    found = best(rows, basis.target)
    title = f"{escaped(trace.name)}: {about(basis.trace)}, target {percent(basis.target)} warm"
    hours = max(basis.trace.seconds[-1], 60.0) / 3600
    console().print(title, table(rows, found, hours, basis.price))
    print(*_notes(basis), "", *_sentences(basis, rows, found), sep="\n")
    if found is None:
        raise CommandError(
            f"No answer with up to {MOST_GPUS} GPUs meets --target {target} and refuses at most "
            f"{percent(MOST_REFUSED)} of the calls of each model.",
            FAILED,
        )
    print("", *_pasted(basis, found.answer), "", sep="\n")


def _basis(file: Path, definition: Path, target: str, gpu: str | None, stack: str | None) -> _Basis:
    share = target_of(target)
    if not file.name:
        raise CommandError("Add the trace: tidegate plan --trace day.csv.gz (docs/capacity.md).", WRONG_INPUT)
    platform = read_definition(definition)
    try:
        trace = read_trace(file)
    except SimulationError as error:
        record = "" if file.exists() else " Run `tidegate trace` to record one (docs/capacity.md)."
        raise CommandError(f"{error}{record}", WRONG_INPUT) from None
    found = stack_of(platform, stack, trace)
    planes = [*([found.data_plane] if found else []), *platform.header.data_planes]
    inventory = [group for plane in planes for group in plane.gpus]
    request_seconds = (found.platform.proxy.timeouts if found else Timeouts()).request_seconds
    planned = _gpu(gpu, inventory)
    unfit = too_large(planned, trace)
    called = {trace.models[which].name for which in {*trace.which}}
    if refused := [name for name in unfit if name in called]:
        why = f"a whole {planned.name} is too small for {listed(refused, most=5)}"
        raise CommandError(f"No answer: {why}. Plan for a larger GPU (--gpu).", FAILED)
    trace = only(trace, {model.name for model in trace.models} - {*unfit})
    return _Basis(platform, trace, planned, share, inventory, found, loading_for(trace, request_seconds), unfit)


def stack_of(definition: Definition, name: str | None, trace: Trace) -> Stack | None:
    """Return the stack of that name, or else the one with the most models of the trace, preferring production. None if
    the definition has no stack. Raises CommandError for an unknown name."""
    if name is not None:
        return chosen_stacks(definition, name)[0]
    models = {model.name for model in trace.models}

    def rank(stack: Stack) -> tuple[int, bool]:
        return len(models & {model.name for model in stack.platform.models}), stack.environment.production

    return max(definition.stacks, key=rank, default=None)


def _gpu(name: str | None, inventory: Sequence[GpuNodes]) -> Gpu:
    """Return the GPU to plan for. By default, the first known one of the inventory."""
    labels = [group.product for group in inventory]
    gpu = find_gpu(name or next((label for label in labels if gpu_product(label)), DEFAULT_GPU), labels)
    cut = (group.strategy for group in inventory if group.strategy and group.product == gpu.label)
    return replace(gpu, strategy=next(cut, "mixed"))


def _sentences(basis: _Basis, rows: Sequence[Row], found: Row | None) -> list[str]:
    if found is None:
        closest = max(rows, key=lambda row: row.figures.share_warm)
        warm = percent(closest.figures.share_warm)
        return [f"The closest is {closest.answer}: {warm} of the requests are warm, for {basis.cost(closest.answer)}."]
    warm = percent(found.figures.share_warm)
    sentences = [f"With {found.answer}, {warm} of the requests find their model in memory: {basis.cost(found.answer)}."]
    if found.figures.worst_served is not None:
        name, refused, calls = found.figures.worst_served
        sentences.append(f"Worst served is {escaped(name)}: {refused:,} of its {count_of(calls, 'call')} are refused.")
    if basis.stack is not None:
        called, pools = {model.name for model in basis.trace.models}, set()
        for _, server, pool in basis.stack.pools():
            if not called.isdisjoint(model.name for model in basis.stack.models_of(server, pool)):
                pools.add(f"{server.name}/{pool.name}")
        if now := devices.summary(each for each in devices.taken(basis.stack) if each.pool in pools):
            sentences.append(f"Today, the pools of these models take {now}.")
        environment = basis.stack.environment.name
        planes = [each.data_plane.name for each in basis.definition.stacks if each.environment.name == environment]
        if len(planes) > 1:
            of_each = f"The change below applies to {len(planes)} ({listed(planes)}), each at that cost."
            sentences.append(f"These costs are of one data plane. {of_each}")
    return sentences


def _notes(basis: _Basis) -> list[str]:
    price, notes = basis.price, []
    if price:
        each = f"{price.per_hour:g} {price.currency}"
        notes.append(f"A whole {basis.gpu.name} costs {each} an hour: {escaped(price.source)}, {price.as_of}.")
    else:
        notes.append(f"The inventory has no price of {basis.gpu.name}, so the table has only GPU-hours.")
    notes.append("The first load of each model is not counted: every simulation starts with empty slices.")
    notes += too_few(len(basis.trace))
    wait, longest = basis.loading.wait_seconds, max(model.load_seconds for model in basis.trace.models)
    if wait != LOADING.wait_seconds:
        notes.append(f"Planned pools have `waitSeconds: {wait}`, because the longest load takes {longest:.0f} s.")
    if wait < min(longest, MOST_WAIT_SECONDS):
        notes.append(f"`proxy.timeouts.requestSeconds` is {wait + 1}, too short for that load: increase it first.")
    if basis.left_out:
        large = listed(basis.left_out, most=5)
        notes.append(f"Left out: models that nothing calls and that do not fit on a whole {basis.gpu.name}: {large}.")
    return notes


def _pasted(basis: _Basis, answer: Answer) -> Iterator[str]:
    """Yield the change of the definition, its place, and further steps."""
    change, where = _change(basis, answer), basis.definition.file
    merged = change
    if basis.stack:
        environment = basis.stack.environment.name
        merged, where = laid_over(environment, change), place_of(basis.definition, environment)
    yield f"Merge this into {escaped(where)}, then run `{tidegate('check', basis.definition.file)}`:"
    yield ""
    yield overlay_text(merged)
    yield ""
    if unfit := _unfit(basis.trace):
        yield f"Left out: models with names that are not valid in a definition: {listed(unfit, most=5)}. Rename them."
    (server,) = change["servers"]
    if not basis.stack or server["name"] not in {each.name for each in basis.stack.platform.servers}:
        yield f"{server['name']} is a new server: also set its `image` and `repository`, next to `pools`."
    yield f"Copy `resources` and `tolerations` to {server['pools'][0]['name']} from the pools that it replaces."
    yield "After that, remove those pools, once nothing calls their models any more."
    slices = {answer.on.profile: answer.replicas}
    gpus = fewest_gpus(answer.gpu.product, slices) if answer.on.profile else answer.replicas
    layout = f", with {answer.on.profile} in `mig.slices` of the data plane's `gpus`" if answer.on.profile else ""
    yield f"Its slices need at least {gpus} × {answer.gpu.name}{layout}."
    if basis.stack and not answer.gpu.label:
        label = "--gpu <node label nvidia.com/gpu.product>"
        yield f"The definition has no {answer.gpu.name}. Set {label}, so that the pool uses only such GPUs."


def _change(basis: _Basis, answer: Answer) -> dict[str, Any]:
    """Return the pool at the first server that loads on demand, with the models of the trace."""
    pools = [(server.name, pool) for _, server, pool in basis.stack.pools()] if basis.stack else []
    on_demand = [name for name, pool in pools if isinstance(pool.loading, OnDemand)]
    server = on_demand[0] if on_demand else _unused("ondemand", {name for name, _ in pools})
    name = _unused(answer.name, {pool.name for at, pool in pools if at == server})
    tree = pool_tree(answer.gpu, name, answer.on, answer.replicas, answer.loading)
    before = {model.name: model for model in basis.stack.platform.models} if basis.stack else {}
    unfit = {*_unfit(basis.trace)}
    models = []
    for traced in sorted((each for each in basis.trace.models if each.name not in unfit), key=lambda each: each.name):
        old = before.get(traced.name)
        model: dict[str, Any] = {"name": traced.name, "server": server, "pool": name}
        if traced.footprint_bytes >= LEAST_BYTES:
            model["footprint"] = size_text(traced.footprint_bytes)
        # The simulation has neither pins nor idle times.
        if old and old.pinned:
            model["pinned"] = False
        if old and old.idle_seconds is not None:
            model["idleSeconds"] = None
        models.append(model)
    return {"servers": [{"name": server, "pools": [tree]}], "models": models}


def _unfit(trace: Trace) -> list[str]:
    return [model.name for model in trace.models if not re.match(MODEL_NAME, model.name)]


def _unused(name: str, taken: Collection[str]) -> str:
    return next(each for each in chain([name], (f"{name}-{number}" for number in count(2))) if each not in taken)
