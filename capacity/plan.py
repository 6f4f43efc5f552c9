"""`make plan`: which slices, how many, at what price, and what callers notice, for the requests of a trace."""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from tidegate_eviction.simulate.report import about
from tidegate_eviction.simulate.trace import SimulationError, Trace, read_trace

from policies.guardrails.money import money
from stacks.command import FAILED, WRONG_INPUT, CommandError
from stacks.problems import escaped, listed
from stacks.stack import Stack
from stacks.validate import read_definition

from .answers import Row, best, dedicated, front, with_footprints
from .block import block, unfit_names
from .lines import Line, percent, table
from .picture import draw
from .prices import Prices, gpu_hours, prices_of, read_prices
from .search import MOST_GPUS, Search
from .simulations import Figures, Simulations
from .slices import DEFAULT_GPU, Gpu, find_gpu
from .today import Today, always_warm, footprints, stack_of, today

MORE_TRAFFIC = 1.2
_WIDTH = 140  # Columns of a table that goes to no terminal.
_ON_DEMAND = "ondemand"  # Name of the server in the block, where the definition has none for these models.


@dataclass(frozen=True)
class PlanRequest:
    """What is planned for, as it was said."""

    trace: Path
    definition: Path
    target: str = "99%"
    gpu: str | None = None
    prices: Path | None = None
    stack: str | None = None
    out: Path = Path("build/plan")


@dataclass(frozen=True)
class _Basis:
    """What all is reckoned with."""

    trace: Trace
    gpu: Gpu
    target: float
    prices: Prices
    stack: Stack | None

    def money(self, gpus: Fraction | None, gpu: Gpu | None = None) -> float | None:
        """Return what so many GPUs cost a month; None where the price is not known."""
        price = self.prices.of(gpu or self.gpu)
        return None if price is None or gpus is None else gpu_hours(gpus) * price.per_hour

    @property
    def currency(self) -> str:
        """Currency of the GPU's price; nothing where there is none."""
        price = self.prices.of(self.gpu)
        return price.currency if price else ""

    def cost(self, line: Line) -> str:
        """Return what a line costs a month, for people."""
        if line.money is not None:
            return f"{money(line.money, self.currency)} a month"
        return f"{line.gpu_hours or 0:,.0f} GPU-hours a month"


def make_plan(request: PlanRequest) -> None:
    """Search, print what was found, and draw it; CommandError where no answer meets the target."""
    basis = _basis(request)
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{request.out}: no pictures can be written there ({error.strerror}).") from None
    with Simulations(basis.trace) as simulations:
        search = Search(simulations, basis.gpu, basis.target)
        plain = search.plain()
        mixed = search.mixed(plain)
        found = best([*plain, *mixed], basis.target)
        on_front = {id(row) for row in front([*plain, *mixed])}
        rows = sorted(
            [*plain, *(row for row in _once(mixed) if id(row) in on_front or row is found)],
            key=lambda row: (row.share or 0, row.figures.share_warm),
        )
        busier = _busier(simulations, [row for row in rows if id(row) in on_front or row is found])
        now = today(basis.stack, basis.trace) if basis.stack else None
        met_today = _met_today(simulations, now) if now else None
    lines = [
        Line(
            row.name, str(row.answer.pools[0].on) if row.answer and row.answer.is_plain else "mixed", row.figures,
            gpu_hours(row.share or Fraction()), basis.money(row.share), row is found, busier.get(id(row)),
        )
        for row in rows
    ]  # fmt: skip
    lines += [_endpoints(basis), *([_today(basis, now, met_today)] if now else [])]
    title = f"{escaped(str(request.trace))}: {about(basis.trace)}; target {percent(basis.target)} at once"
    hours = basis.trace.seconds[-1] / 3600 or 1.0
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, emoji=False)
    console.print(table(title, lines, hours, f"{basis.currency} a month" if basis.currency else ""))
    print(*_notes(basis, request, now), sep="\n")
    print()
    print(*_sentences(basis, lines), sep="\n")
    if found and found.answer:
        server = _server(basis.stack)
        print(f"\n{block(found.answer, basis.trace, server)}\n")
        if unfit := unfit_names(found.answer):
            print(f"Left out of it, for no definition takes such names: {listed(unfit)}.\n")
    axis = f"{basis.currency or 'GPU-hours'} a month"
    try:
        print("Pictures:", *draw(request.out, title, axis, lines, basis.target))
    except SimulationError as error:
        raise CommandError(str(error).removeprefix("--plot ")) from None
    if found is None:
        raise CommandError(f"No answer on up to {MOST_GPUS} GPUs meets TARGET={request.target}.", FAILED)


def _basis(request: PlanRequest) -> _Basis:
    """Return what was said, read and checked before anything long is done."""
    target = target_of(request.target)
    if not request.trace.name:
        raise CommandError("Say for which requests: make plan TRACE=day.csv.gz (docs/capacity.md).", WRONG_INPUT)
    given = read_prices(request.prices) if request.prices else None
    definition = read_definition(request.definition)
    inventory = [group for plane in definition.header.data_planes for group in plane.gpus]
    prices = prices_of(inventory) if given is None else given
    labels = [group.product for group in inventory]
    gpu = find_gpu(request.gpu or (labels[0] if labels else DEFAULT_GPU), labels)
    try:
        trace = read_trace(request.trace)
    except SimulationError as error:
        raise CommandError(str(error), WRONG_INPUT) from None
    stack = stack_of(definition, request.stack, trace)
    return _Basis(with_footprints(trace, footprints(stack) if stack else {}), gpu, target, prices, stack)


def target_of(text: str) -> float:
    """Return a share of requests, written in per cent; CommandError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    share = float(match[1]) / 100 if match else math.nan
    if not 0 < share <= 1:
        why = "it is the share of requests to be answered at once, in per cent: more than 0%, at most 100%"
        raise CommandError(f"TARGET={escaped(text)}: {why}. Write TARGET=99%.", WRONG_INPUT)
    return share


def _once(rows: Sequence[Row]) -> list[Row]:
    return list({id(row): row for row in rows}.values())


def _busier(simulations: Simulations, rows: Sequence[Row]) -> dict[int, Figures]:
    """Return what comes of answers with more traffic: the same requests in a shorter time."""
    answers = [row.answer.simulated(MORE_TRAFFIC) for row in rows if row.answer]
    return dict(zip(map(id, rows), simulations.run(answers, "20 % more traffic"), strict=True))


def _met_today(simulations: Simulations, now: Today) -> Figures:
    [figures] = simulations.run([now.pools], str(now))
    return figures + always_warm(simulations.trace, now.always_warm)


def _endpoints(basis: _Basis) -> Line:
    """Return what an endpoint for each model costs, each on the smallest slice that holds it."""
    share, too_large = dedicated(basis.gpu, basis.trace)
    count = len(basis.trace.models) - len(too_large)
    names = {model.name for model in too_large}
    refused = sum(basis.trace.models[which].name in names for which in basis.trace.which)
    warm = len(basis.trace) - refused
    figures = Figures(requests=len(basis.trace), warm=warm, answered=warm)
    return Line(f"{count} dedicated endpoints", "endpoints", figures, gpu_hours(share), basis.money(share))


def _today(basis: _Basis, now: Today, figures: Figures | None) -> Line:
    if now.gpus is None:
        return Line(str(now), "today", figures, None)
    money = [basis.money(share, find_gpu(label)) for label, share in now.gpus.items()]
    known = [each for each in money if each is not None]
    share = sum(now.gpus.values(), Fraction())
    return Line(
        str(now), "today", figures, gpu_hours(share), sum(known) if known and len(known) == len(money) else None
    )


def _sentences(basis: _Basis, lines: Sequence[Line]) -> list[str]:
    """Return what is recommended, instead of what, and what more traffic does to it."""
    found = next((line for line in lines if line.is_best), None)
    endpoints = next(line for line in lines if line.kind == "endpoints")
    if found is None or found.figures is None:
        closest = max((line for line in lines if line.figures and line.busier), key=_at_once)
        return [f"The closest is {closest.name}: {percent(_at_once(closest))} at once for {basis.cost(closest)}."]
    said = [
        f"{found.name} answers {percent(_at_once(found))} at once for {basis.cost(found)}; "
        f"{endpoints.name} would be {basis.cost(endpoints)}."
    ]
    if found.busier is not None:
        after = f"With 20 % more traffic it answers {percent(found.busier.share_warm)} at once"
        if found.busier.share_warm >= basis.target:
            return [*said, f"{after}: the target holds."]
        will_do = [line for line in lines if line.busier and line.busier.share_warm >= basis.target]
        cheapest = min(will_do, key=lambda line: line.cost or 0.0, default=None)
        instead = f"{cheapest.name} would do, for {basis.cost(cheapest)}" if cheapest else "nothing above would do"
        said.append(f"{after}, and misses the target; {instead}.")
    return said


def _at_once(line: Line) -> float:
    return line.figures.share_warm if line.figures else 0.0


def _notes(basis: _Basis, request: PlanRequest, now: Today | None) -> list[str]:
    """Return what the table's figures rest upon."""
    price, said = basis.prices.of(basis.gpu), []
    if price:
        each = f"{price.per_hour:g} {price.currency}"
        said.append(f"A whole {basis.gpu.name} is {each} an hour: {escaped(price.source)}, {price.as_of}.")
    else:
        where = escaped(str(request.prices)) if request.prices else "the inventory (PRICES=prices.yaml names a file)"
        said.append(f"There is no price of {basis.gpu.name} in {where}: GPU-hours, no money.")
    if now is None:
        said.append(f"{escaped(str(request.definition))} names no model of the trace: there is no row for today.")
    elif now.strangers:
        count = f"{len(now.strangers)} of {len(basis.trace.models)}"
        said.append(f"{now.stack.name} does not name {count} models: they are taken for its first on-demand pool's.")
    too_large = dedicated(basis.gpu, basis.trace)[1]
    if too_large:
        names = listed((model.name for model in too_large), most=5)
        said.append(f"Larger than what models may take on a whole {basis.gpu.name}, and so refused: {names}.")
    return said


def _server(stack: Stack | None) -> str:
    """Return the name of the server that the block is for."""
    servers = stack.platform.servers if stack else ()
    on_demand = (server.name for server in servers if any(pool.loading.mode == "on-demand" for pool in server.pools))
    return next(on_demand, _ON_DEMAND)
