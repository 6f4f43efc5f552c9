"""`python -m tidegate_eviction`: serves; `list` shows what is resident, `retry` ends a quarantine."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from . import listing
from .place import Place
from .serve import EvictionPolicy, folders
from .serving.events import configure
from .serving.settings import SettingsError
from .simulate.command import add_to

WRONG_INPUT, DEFECT = 2, 1
PIPE_WIDTH = 160
"""Columns of a table that goes to no terminal."""
LEVELS = ("debug", "info", "warning", "error", "critical")
PLACE = Place()

app = typer.Typer(
    name="tidegate_eviction", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="The eviction policy: which models stay in the memory of an on-demand Triton.",
)  # fmt: skip
Address = Annotated[str, typer.Option(help="Host and port of the policy's leases.")]


@app.command()
def serve(
    settings: Annotated[Path, typer.Option(help="The settings file.")] = PLACE.settings,
    control: Annotated[Path, typer.Option(help="Folder for the control secret, which Triton reads.")] = PLACE.control,
    state: Annotated[Path, typer.Option(help="Folder for what is learned.")] = PLACE.state,
    tls: Annotated[Path, typer.Option(help="Folder with Triton's certificate and ca.crt.")] = PLACE.tls,
    host: Annotated[str, typer.Option(help="Address to listen on; every one without it.")] = PLACE.host,
    lease_port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = PLACE.lease_port,
    admin_port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = PLACE.admin_port,
    triton: Annotated[str, typer.Option(help="Host and port of Triton's gRPC.")] = PLACE.triton_address,
    triton_metrics: Annotated[str, typer.Option(help="URL of Triton's metrics.")] = PLACE.metrics_url,
    drain_seconds: Annotated[
        float, typer.Option(help="How long leases may take to end after SIGTERM.", min=0)
    ] = PLACE.drain_seconds,
    log_level: Annotated[str, typer.Option(help=f"One of {', '.join(LEVELS)}.")] = "info",
) -> None:
    """Serve until SIGTERM."""
    if log_level.lower() not in LEVELS:
        _refuse(f"--log-level: it is none of {', '.join(LEVELS)}")
    configure(log_level)
    place = Place(
        settings=settings, control=control, state=state, tls=tls, host=host, lease_port=lease_port,
        admin_port=admin_port, triton_address=triton, metrics_url=triton_metrics, drain_seconds=drain_seconds,
    )  # fmt: skip
    try:
        folders(place)
        is_well = asyncio.run(_serve(EvictionPolicy(place)))
    except (SettingsError, OSError) as error:
        _refuse(str(error))
    if not is_well:
        raise SystemExit(DEFECT)


@app.command("list")
def show(
    address: Address = listing.ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="As the API says it.")] = False,
) -> None:
    """Show every model of a policy that runs: its state, what it takes, and who holds it."""
    try:
        found = listing.ask(address)
    except listing.AskError as error:
        _refuse(str(error))
    if json:
        print(found.model_dump_json(by_alias=True, indent=2))
    else:
        listing.show(found, Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH))


@app.command()
def retry(model: Annotated[str, typer.Argument(help="Its name.")], address: Address = listing.ADDRESS) -> None:
    """Let a model out of quarantine: the next that asks for it has it loaded."""
    try:
        listing.retry(address, model)
    except listing.AskError as error:
        _refuse(str(error))
    print(f"{model} is tried again when somebody asks for it.")


add_to(app)


async def _serve(policy: EvictionPolicy) -> bool:
    await policy.start()
    if 0 in (policy.place.lease_port, policy.place.admin_port):
        # For whoever wanted free ports; else nothing is written but the log.
        print("ready " + " ".join(f"{name}={port}" for name, port in policy.ports.items()), flush=True)
    return await policy.run_until_stopped()


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    raise SystemExit(WRONG_INPUT)


if __name__ == "__main__":
    app(prog_name="python -m tidegate_eviction")
