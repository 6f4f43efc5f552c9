"""`python -m tidegate_eviction`: serve, list, retry, simulate and generate."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from . import listing
from .process import EvictionPolicy, ServeOptions
from .serving.event_log import configure
from .serving.settings import SettingsError
from .simulate.command import add_to

WRONG_INPUT, DEFECT = 2, 1
PIPE_WIDTH = 160
"""Columns of a table that goes to no terminal."""
LEVELS = ("debug", "info", "warning", "error", "critical")
DEFAULT = ServeOptions()

app = typer.Typer(
    name="tidegate_eviction", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="The eviction policy: which models stay in the memory of an on-demand inference server.",
)  # fmt: skip
Address = Annotated[str, typer.Option(help="Host and port of the policy's leases.")]
Port = Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)]


@app.command()
def serve(
    settings: Annotated[Path, typer.Option(help="The settings file.")] = DEFAULT.settings,
    control: Annotated[
        Path, typer.Option(help="Folder for the control secret, which the server reads.")
    ] = DEFAULT.control,
    state: Annotated[Path, typer.Option(help="Folder for what is learned.")] = DEFAULT.state,
    host: Annotated[str, typer.Option(help="Address to listen on; every one without it.")] = DEFAULT.host,
    lease_port: Port = DEFAULT.lease_port,
    admin_port: Port = DEFAULT.admin_port,
    server: Annotated[str | None, typer.Option(help="Host and port of the server; in a pod, its kind's own.")] = None,
    server_metrics: Annotated[str | None, typer.Option(help="URL of its metrics; in a pod, its kind's own.")] = None,
    tls: Annotated[Path | None, typer.Option(help="Folder with the server's certificate and ca.crt.")] = None,
    drain_seconds: Annotated[
        float, typer.Option(help="How long requests may take to end after SIGTERM.", min=0)
    ] = DEFAULT.drain_seconds,
    log_level: Annotated[str, typer.Option(help=f"One of {', '.join(LEVELS)}.")] = "info",
) -> None:
    """Serve until SIGTERM."""
    if log_level.lower() not in LEVELS:
        _refuse(f"--log-level: it is none of {', '.join(LEVELS)}")
    configure(log_level)
    options = ServeOptions(
        settings, control, state, host, lease_port, admin_port, server, server_metrics, tls, drain_seconds
    )
    try:
        is_well = asyncio.run(_serve(EvictionPolicy(options)))
    except (SettingsError, OSError) as error:
        _refuse(str(error))
    if not is_well:
        raise SystemExit(DEFECT)


@app.command("list")
def show(
    address: Address = listing.ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="As the API says it.")] = False,
) -> None:
    """Show every model of a running policy: its state, its footprint and its leases."""
    try:
        found = listing.fetch(address)
    except listing.ListingError as error:
        _refuse(str(error))
    if json:
        print(found.model_dump_json(by_alias=True, indent=2))
    else:
        listing.show(found, Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH))


@app.command()
def retry(model: Annotated[str, typer.Argument(help="Its name.")], address: Address = listing.ADDRESS) -> None:
    """Let a model out of quarantine: the next acquire of it loads it."""
    try:
        listing.retry(address, model)
    except listing.ListingError as error:
        _refuse(str(error))
    print(f"{model} is tried again when it is asked for.")


add_to(app)


async def _serve(policy: EvictionPolicy) -> bool:
    await policy.start()
    if 0 in (policy.options.lease_port, policy.options.admin_port):
        # Only where free ports were asked for; else nothing is written but the log.
        print("ready " + " ".join(f"{name}={port}" for name, port in policy.ports.items()), flush=True)
    return await policy.run_until_stopped()


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    raise SystemExit(WRONG_INPUT)


if __name__ == "__main__":
    app(prog_name="python -m tidegate_eviction")
