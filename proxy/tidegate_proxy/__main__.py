"""`python -m tidegate_proxy`: serves; `key new` makes an API key."""

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
"""Seconds after which a thread that works lets another have its turn (Python's own default is ten times as long)."""


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
        typer.Option(help=f"Folder that holds {', '.join(FOLDERS.values())}."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; every one without it.")] = "",
    http_port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = Layout.http_port,
    grpc_port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = Layout.grpc_port,
    admin_port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = Layout.admin_port,
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
    """Make a key: it is printed once, with the line that stands for it in the secret."""
    made = new_key()
    print(f"The key, for its owner; nobody can show it again:\n  {made}")
    print("The line for the entry of its principal in the secret with the API keys:")
    print(f"  {hash_line(made)}")


async def _serve(proxy: Proxy) -> None:
    # Probes are answered by a thread of their own, which waits so long for its turn again and again.
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_no_freed_memory(tls=proxy.settings.tls)
    await proxy.start()
    if 0 in (proxy.layout.http_port, proxy.layout.grpc_port, proxy.layout.admin_port):
        # For a parent process that asked for free ports; else nothing is written but the log.
        # One write: nothing of the log comes between a line and its end.
        sys.stdout.write(f"ready {' '.join(f'{name}={port}' for name, port in proxy.ports.items())}\n")
        sys.stdout.flush()
    await proxy.run_until_stopped()


if __name__ == "__main__":
    app(prog_name="python -m tidegate_proxy")
