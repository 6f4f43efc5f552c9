"""Commands about traffic and the slices that it needs. Each command imports its modules when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from stacks.command import exit_codes

from .options import DEFINITION, Definition, Stack

TRACE = Path("build/trace.csv.gz")
Target = Annotated[str, typer.Option(metavar="PERCENT", help="Share of calls that must find their model in memory.")]
Prometheus = Annotated[str, typer.Option(metavar="URL", help="The Prometheus to read.")]
Match = Annotated[str, typer.Option(metavar="MATCHERS", help="Further PromQL matchers, such as cluster=…")]


def trace(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The trace. A name in .gz is compressed.")] = TRACE,
    prometheus: Prometheus = "",
    hours: Annotated[float | None, typer.Option(help="Hours of traffic to read, up to now.")] = None,
    match: Match = "",
    logs: Annotated[str, typer.Option(metavar="FILES", help="Read logs of proxies and policies instead.")] = "",
) -> None:
    """Record traffic from Prometheus or logs as a trace, for the simulator and `plan`."""
    with exit_codes() as outcome:
        outcome.text = "nothing was written"
        from capacity.command import write_recorded

        write_recorded(out, prometheus, hours, match, logs)


def advise(
    definition: Definition = DEFINITION,
    stack: Stack = None,
    prometheus: Prometheus = "",
    hours: Annotated[float, typer.Option(help="Hours of traffic to read, up to now.")] = 24.0,
    match: Match = "",
    target: Target = "99%",
) -> None:
    """Show what limits each pool, and recommend a change."""
    with exit_codes():
        from capacity.advising import print_advice

        print_advice(definition, stack, prometheus, hours, match, target)


def plan(
    definition: Definition = DEFINITION,
    trace: Annotated[Path, typer.Option(metavar="FILE", help="The recorded traffic.")] = TRACE,
    target: Target = "99%",
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="a100-80gb, or a node label.")] = None,
    stack: Stack = None,
) -> None:
    """Find the cheapest slices with which enough requests find their model in memory."""
    with exit_codes():
        from capacity.plan import make_plan

        make_plan(trace, definition, target, gpu, stack)
