"""`python -m tidegate_eviction simulate` and `generate`."""

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..core.rules import PoolRules
from ..policies.registry import find
from .engine import SimulationSetting
from .trace import SimulationError, Trace, read_trace, write_trace
from .zoo import Zoo, generate

WRONG_INPUT = 2
LEAST_LEASE = 1.0
COMPARED = ("lru-idle", "lru", "cost-aware")
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_ZOO = Zoo()
_RULES: dict[str, Any] = {each.name: each.default for each in fields(PoolRules)}
"""The container's own defaults."""


def simulate_command(
    trace: Annotated[Path, typer.Option(help="The requests: lines `time_ms,id`, below descriptions of the models.")],
    capacity: Annotated[
        str, typer.Option(help="Of each replica: bytes (also 9Gi, 500M), or per cent of all footprints, as 40%.")
    ] = "",
    policy: Annotated[str, typer.Option(help="Which policy; with --compare, one more to compare.")] = "",
    replicas: Annotated[int, typer.Option(help="How many replicas the pool has.", min=1, max=1000)] = 1,
    idle_seconds: Annotated[float, typer.Option(help="Idle for so long a model may go; 0: at once.", min=0)] = 300.0,
    wait_seconds: Annotated[
        float, typer.Option(help="How long a request waits for room before it is busy; loads are waited for.", min=0)
    ] = 0.0,
    lease_seconds: Annotated[
        float, typer.Option(help="How long leases are; 0: proxies give them back after their last request.", min=0)
    ] = 0.0,
    holders: Annotated[int, typer.Option(help="How many proxies there are.", min=1, max=1000)] = 1,
    unload_seconds: Annotated[float, typer.Option(help="What an unload takes.", min=0)] = 0.0,
    freeing_seconds: Annotated[float, typer.Option(help="How long memory takes to come back after it.", min=0)] = 0.0,
    residency_factor: Annotated[
        float, typer.Option(help="Anti-thrash: a model stays so many times what its load took; 0: off.", min=0)
    ] = _RULES["residency_factor"],
    instant: Annotated[
        bool, typer.Option("--instant", help="Loads take no time (they are charged): as plain simulations of caches.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="All policies, Belady, libCacheSim's caches and the offline bound.")
    ] = False,
    bound: Annotated[
        bool, typer.Option(help="With --compare: find the offline bound too, which takes longest.")
    ] = True,
    sweep: Annotated[str, typer.Option(metavar="capacity", help="The curve over capacities of 10 to 100%.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw it: a file whose name ends in .png or .svg.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Run policies under simulated time over a trace: how often, and how long, would they have loaded?"""
    with _answering():
        if sweep not in ("", "capacity"):
            raise SimulationError(f"--sweep {sweep}: only the capacity can be swept. Write --sweep capacity.")
        if not (policy or compare):
            raise SimulationError("Say which policy (--policy cost-aware), or --compare for all of them.")
        numbers = {"--idle-seconds": idle_seconds, "--wait-seconds": wait_seconds, "--lease-seconds": lease_seconds,
                   "--unload-seconds": unload_seconds, "--freeing-seconds": freeing_seconds,
                   "--residency-factor": residency_factor}  # fmt: skip
        for option, value in numbers.items():
            if not math.isfinite(value):
                raise SimulationError(f"{option} {value}: this is no number that something can last.")
        if 0 < lease_seconds < LEAST_LEASE:
            why = "renewing such short ones would take longer than all else"
            raise SimulationError(f"--lease-seconds {lease_seconds}: it is 0, or at least {LEAST_LEASE:g}; {why}.")
        wanted = dict.fromkeys([*COMPARED, policy] if compare else [policy])
        try:
            policies = [find(name) for name in wanted if name]
        except ValueError as error:
            raise SimulationError(f"--policy {policy}: {error}.") from None
        from . import compare as comparing
        from . import report  # these import what takes long, and is not always installed

        if plot:
            report.check_plot(plot)
        read = read_trace(trace)
        setting = SimulationSetting(
            policy=policies[0], capacity_bytes=read.total_bytes if sweep else capacity_bytes(capacity, read),
            idle_seconds=idle_seconds, wait_seconds=wait_seconds, replicas=replicas, holders=holders,
            lease_seconds=lease_seconds, unload_seconds=unload_seconds, freeing_seconds=freeing_seconds,
            residency_factor=residency_factor, instant=instant,
        )  # fmt: skip
        notes: list[str] = []
        said: object
        if sweep:
            points = list(comparing.sweep(read, setting, policies))
            table = report.curve(points)
            said = [report.as_json(read, point.capacity_bytes, replicas, point.rows) for point in points]
            if plot:
                report.plot_sweep(plot, report.about(read), points)
        else:
            bounded = bound and compare
            compared = (
                comparing.compare(read, setting, policies, bounded) if compare else [comparing.run(read, setting)]
            )
            rows = list(compared)
            table, notes = report.table(read, setting, rows), report.notes(rows, bounded)
            said = report.as_json(read, setting.capacity_bytes, replicas, rows)
            if plot:
                report.plot_rows(plot, str(table.title), read, rows)
        if as_json:
            print(json.dumps(said))
        else:
            Console(width=None if sys.stdout.isatty() else 140).print(table)
            print(*notes, sep="\n", end="\n" if notes else "")


def generate_command(
    out: Annotated[Path, typer.Option(help="Where to; gzipped if its name ends in .gz.")],
    models: Annotated[int, typer.Option(help="How many.")] = _ZOO.models,
    requests: Annotated[int, typer.Option(help="About how many.")] = _ZOO.requests,
    hours: Annotated[float, typer.Option(help="How long the trace is.")] = _ZOO.hours,
    zipf: Annotated[float, typer.Option(help="The model of rank r is used in proportion to 1/r^zipf.")] = _ZOO.zipf,
    diurnal: Annotated[float, typer.Option(help="How much more at the busiest time of day: 0 to 1.")] = _ZOO.diurnal,
    bursty: Annotated[float, typer.Option(help="Share of models that come in bursts.")] = _ZOO.bursty,
    nightly: Annotated[float, typer.Option(help="Share of models that only a nightly batch uses.")] = _ZOO.nightly,
    footprint_mb: Annotated[float, typer.Option(help="The median footprint.")] = _ZOO.footprint_mb,
    spread: Annotated[float, typer.Option(help="Standard deviation of the footprints' logarithms.")] = _ZOO.spread,
    load_mb_per_second: Annotated[float, typer.Option(help="How fast models load.")] = _ZOO.load_mb_per_second,
    warm_ms: Annotated[float, typer.Option(help="What the median model's requests take.")] = _ZOO.warm_ms,
    seed: Annotated[int, typer.Option(help="Another one is another zoo.")] = _ZOO.seed,
) -> None:
    """Write the trace of a synthetic zoo: Zipf, by day and night, in bursts, with a nightly batch."""
    with _answering():
        zoo = Zoo(models, requests, hours, zipf, diurnal, bursty, nightly, footprint_mb, spread, load_mb_per_second,
                  warm_ms, seed)  # fmt: skip
        made = generate(zoo)
        write_trace(made, out, f"A synthetic zoo: {zoo}")
        from .report import about

        print(f"{out}: {about(made)}")


def add_to(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("simulate")(simulate_command)
    app.command("generate")(generate_command)


def capacity_bytes(text: str, trace: Trace) -> int:
    """Return what a capacity says, in bytes; SimulationError if it says nothing."""
    written = text.strip()
    if written.endswith("%"):
        try:
            percent = float(written[:-1])
        except ValueError:
            percent = math.nan
        if 0 < percent <= 1000 and (size := round(percent / 100 * trace.total_bytes)):
            return size
    elif match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?)B?", written, re.IGNORECASE | re.ASCII):
        unit = UNITS.get(match[2].upper())
        size = round(float(match[1]) * unit) if unit else 0
        if 0 < size < 1 << 62:
            return size
    said = f"--capacity {text}: this is no size" if written else "Say --capacity"
    raise SimulationError(f"{said}. Write bytes (9663676416, 9Gi, 500M), or per cent of all footprints (40%).")


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except SimulationError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_INPUT) from None
