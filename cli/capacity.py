"""Commands about traffic and the slices it needs. What a command needs is imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from stacks.command import exit_codes

from .options import DEFINITION, Definition, Stack

Trace = Annotated[Path, typer.Argument(help="File of the requests; gzipped if its name ends in .gz.")]
TRACE = Path("build/trace.csv.gz")
Target = Annotated[str, typer.Option(metavar="PERCENT", help="Share of calls that find their model resident.")]
Prometheus = Annotated[str, typer.Option(metavar="URL", help="The Prometheus to read.")]
Match = Annotated[str, typer.Option(metavar="MATCHERS", help="Further matchers of PromQL, such as cluster=…")]


def trace(
    out: Trace = TRACE,
    prometheus: Prometheus = "",
    hours: Annotated[float | None, typer.Option(help="How long, up to now.")] = None,
    match: Match = "",
    logs: Annotated[str, typer.Option(metavar="FILES", help="Logs of proxies and eviction policies instead.")] = "",
) -> None:
    """Write recorded traffic as a trace, which the simulator reads."""
    with exit_codes() as outcome:
        outcome.text = "nothing was written"
        from capacity.command import write_recorded

        write_recorded(out, prometheus, hours, match, logs)


def advise(
    definition: Definition = DEFINITION,
    stack: Stack = None,
    prometheus: Prometheus = "",
    hours: Annotated[float, typer.Option(help="How long, up to now.")] = 24.0,
    match: Match = "",
    target: Target = "99%",
) -> None:
    """Show what limits each pool, and recommend a change."""
    with exit_codes():
        from capacity.advising import print_advice

        print_advice(definition, stack, prometheus, hours, match, target)


def plan(
    trace: Trace = TRACE,
    definition: Annotated[Path, typer.Option(metavar="FILE", help="The platform to change.")] = DEFINITION,
    target: Target = "99%",
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="a100-80gb, or a node label.")] = None,
    stack: Stack = None,
) -> None:
    """Search for the cheapest slices that answer a share of a trace's requests at once."""
    with exit_codes():
        from capacity.plan import make_plan

        make_plan(trace, definition, target, gpu, stack)
