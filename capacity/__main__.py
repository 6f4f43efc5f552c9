"""`python -m capacity`: what the Makefile calls. What a command needs is imported when it runs."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from stacks.command import answering

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Traffic, recorded; slices and money, planned; pools, advised.",
)


@app.callback()
def capacity() -> None:
    """Traffic, recorded; slices and money, planned; pools, advised."""


@app.command()
def trace(
    out: Annotated[Path, typer.Argument(metavar="TRACE", help="The file that is written; gzipped if it ends in .gz.")],
    prometheus: Annotated[str, typer.Option(metavar="URL", help="The Prometheus that is asked.")] = "",
    hours: Annotated[float | None, typer.Option(help="How long, up to now.")] = None,
    match: Annotated[str, typer.Option(metavar="MATCHERS", help="Further matchers of PromQL, such as cluster=…")] = "",
    logs: Annotated[str, typer.Option(metavar="FILES", help="Logs of proxies and eviction policies instead.")] = "",
) -> None:
    """Write recorded traffic as a trace, which the simulator reads."""
    with answering() as outcome:
        outcome.text = "nothing was written"
        from .command import Sources, write_recorded

        write_recorded(Sources(prometheus, hours, match, logs), out)


@app.command()
def advise(
    definition: Annotated[Path, typer.Argument(metavar="DEFINITION", help="The stack definition.")],
    stack: Annotated[str | None, typer.Option(metavar="NAME", help="The stack that is looked at.")] = None,
    prometheus: Annotated[str, typer.Option(metavar="URL", help="The Prometheus that is asked.")] = "",
    samples: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Samples kept before; with --prometheus, where they are kept.")
    ] = None,
    hours: Annotated[float, typer.Option(help="How long, up to now.")] = 24.0,
    match: Annotated[str, typer.Option(metavar="MATCHERS", help="Further matchers of PromQL, such as cluster=…")] = "",
    target: Annotated[str, typer.Option(help="Share of calls that are to find their model resident.")] = "99%",
) -> None:
    """Say what presses on each pool, and what is to be done about it."""
    with answering():
        from .advising import Wanted, tell_advice

        tell_advice(Wanted(definition, stack, prometheus, samples, hours, match, target))


@app.command()
def plan(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The requests.")] = Path(),
    definition: Annotated[
        Path, typer.Option("--definition", metavar="FILE", help="What is there today, and footprints.")
    ] = Path("stacks/inference.yaml"),
    target: Annotated[
        str, typer.Option("--target", metavar="PERCENT", help="Share of requests to be answered at once.")
    ] = "99%",
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="a100-80gb, or a node label.")] = None,
    prices: Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="Prices of GPUs.")] = None,
    stack: Annotated[str | None, typer.Option("--stack", metavar="NAME", help="The stack that is there today.")] = None,
) -> None:
    """Search for the cheapest slices that answer a share of a trace's requests at once, and draw what was found."""
    with answering():
        from .plan import PlanRequest, make_plan

        make_plan(PlanRequest(trace, definition, target, gpu, prices, stack))


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the processes that it began end with it
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    app(prog_name="python -m capacity")


if __name__ == "__main__":
    main()
