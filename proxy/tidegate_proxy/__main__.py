"""`python -m tidegate_proxy` runs the proxy. `python -m tidegate_proxy key new` makes an API key."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from tidegate_contracts.proxy_settings import ProxySettings, variable
from tidegate_service.json_lines import configure

from .access.api_keys import hash_line, new_key
from .malloc import keep_no_freed_memory
from .problems import TableError
from .serve import Proxy
from .settings import Layout, SettingsError, read_settings

WRONG_INPUT = 2
FOLDERS = {
    name: name.replace("_", "-") for name in ("routing", "tls", "api_keys", "authorities", "upstream_ca", "leases")
}
SWITCH_SECONDS = 0.0005
"""Seconds after which a working thread lets another run. Python's default is ten times as long."""


def _settings_help() -> str:
    lines = []
    for name, field in ProxySettings.model_fields.items():
        needed = "needed" if field.is_required() else "optional"
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else "str"
        lines.append(f"{variable(name)}  ({kind}, {needed})")
    return "\n\n".join(lines)


app = typer.Typer(
    name="tidegate_proxy", add_completion=False, pretty_exceptions_enable=False, invoke_without_command=True,
    help="The inference proxy. Settings are environment variables:\n\n" + _settings_help(),
)  # fmt: skip


@app.callback()
def serve(
    context: typer.Context,
    root: Annotated[
        Path | None,
        typer.Option(help=f"Directory that contains {', '.join(FOLDERS.values())}."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Default: all.")] = "",
    http_port: Annotated[int, typer.Option(help="0 means any free port.", min=0, max=65535)] = Layout.http_port,
    grpc_port: Annotated[int, typer.Option(help="0 means any free port.", min=0, max=65535)] = Layout.grpc_port,
    admin_port: Annotated[int, typer.Option(help="0 means any free port.", min=0, max=65535)] = Layout.admin_port,
) -> None:
    """Serve until SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    ports = {"host": host, "http_port": http_port, "grpc_port": grpc_port, "admin_port": admin_port}
    folders = {} if root is None else {name: root / folder for name, folder in FOLDERS.items()}
    try:
        settings = read_settings()
        configure(settings.log_level)
        uvloop.run(_serve(Proxy(settings, Layout(**folders, **ports))))  # type: ignore[arg-type]
    except (SettingsError, TableError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(WRONG_INPUT) from None


key = typer.Typer(help="API keys.")
app.add_typer(key, name="key")


@key.command()
def new() -> None:
    """Create an API key, and print it with the line for the secret."""
    made = new_key()
    print(f"Give this key to its owner. It is not shown again:\n  {made}")
    print("Add this line to the principal's entry of the Secret:")
    print(f"  {hash_line(made)}")


async def _serve(proxy: Proxy) -> None:
    # A separate thread answers probes, and waits for up to this interval each time it needs the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_no_freed_memory(tls=proxy.settings.tls)
    await proxy.start()
    if 0 in (proxy.layout.http_port, proxy.layout.grpc_port, proxy.layout.admin_port):
        # Only for a parent process that chose free ports. Otherwise nothing is written but the log.
        # One write, so that no line of the log can come in between.
        sys.stdout.write(f"ready {' '.join(f'{name}={port}' for name, port in proxy.ports.items())}\n")
        sys.stdout.flush()
    await proxy.run_until_stopped()


if __name__ == "__main__":
    app(prog_name="python -m tidegate_proxy")
