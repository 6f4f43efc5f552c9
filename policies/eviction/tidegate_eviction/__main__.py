"""`python -m tidegate_eviction`: serve, simulate and generate."""

import asyncio
import json
import logging
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from tidegate_contracts import eviction_process
from tidegate_service import json_lines

from .policies.registry import BUILT_IN, find
from .process import EvictionPolicy, ServeOptions
from .serving.settings import SettingsError
from .simulate.engine import SimulationSetting
from .simulate.engine import simulate as simulate_trace
from .simulate.trace import SimulationError, Trace, read_trace, write_trace
from .simulate.zoo import Workload
from .simulate.zoo import generate as make_trace

WRONG_INPUT, DEFECT = 2, 1
FOLDERS = {"settings": eviction_process.SETTINGS_FILE} | {name: name for name in ("control", "state", "cluster", "tls")}
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}

app = typer.Typer(
    name="tidegate_eviction", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="The eviction policy loads and evicts the models of an on-demand inference server.",
)  # fmt: skip
Port = Annotated[int, typer.Option(help="0: any free port.", min=0, max=65535)]


@app.command()
def serve(
    root: Annotated[Path | None, typer.Option(help=f"Directory with {', '.join(FOLDERS.values())}.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on (default: all).")] = ServeOptions.host,
    lease_port: Port = ServeOptions.lease_port,
    admin_port: Port = ServeOptions.admin_port,
    server: Annotated[str, typer.Option(help="Host and port of Triton's gRPC.")] = ServeOptions.server,
    drain_seconds: Annotated[
        float, typer.Option(help="Seconds to wait for requests in flight after SIGTERM.", min=0)
    ] = ServeOptions.drain_seconds,
) -> None:
    """Serve until SIGTERM."""
    json_lines.configure("info")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # Of both servers.
    folders = {} if root is None else {name: root / folder for name, folder in FOLDERS.items()}
    options = ServeOptions(host, lease_port, admin_port, server, drain_seconds, **folders)
    with _refusing(SettingsError, OSError):
        is_well = asyncio.run(_serve(EvictionPolicy(options)))
    if not is_well:
        raise SystemExit(DEFECT)


@app.command()
def simulate(
    trace: Annotated[Path, typer.Option(help="The trace: descriptions of the models, then requests as `time_ms,id`.")],
    capacity: Annotated[
        str, typer.Option(help="Of each replica: bytes (also 9Gi, 500M), or a share of all footprints, such as 40%.")
    ] = "",
    policy: Annotated[str, typer.Option(help="The policy. With --compare, another one to compare.")] = "",
    replicas: Annotated[int, typer.Option(help="Number of replicas.", min=1, max=1000)] = 1,
    idle_seconds: Annotated[float, typer.Option(help="Idle time after which a model can be evicted.", min=0)] = 300.0,
    wait_seconds: Annotated[
        float, typer.Option(help="Time that a request waits for its model.", min=0)
    ] = SimulationSetting.wait_seconds,
    lease_seconds: Annotated[float, typer.Option(help="Duration of a lease.", min=1)] = SimulationSetting.lease_seconds,
    holders: Annotated[int, typer.Option(help="Number of proxies.", min=1, max=1000)] = 1,
    tier: Annotated[
        str, typer.Option(help="Size of a file cache near each replica: bytes, or a share of all footprints.")
    ] = "",
    tier_speedup: Annotated[
        float, typer.Option(help="How many times faster a load from the file cache is.", min=1)
    ] = 8.0,
    compare: Annotated[bool, typer.Option("--compare", help="Compare break-even, lru-idle and cost-aware.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate policies over a trace of requests, and print their loads and refusals."""
    with _refusing(SimulationError):
        if not (policy or compare):
            raise SimulationError("Set --policy, such as --policy cost-aware, or --compare for all policies.")
        numbers = {"--idle-seconds": idle_seconds, "--wait-seconds": wait_seconds, "--lease-seconds": lease_seconds,
                   "--tier-speedup": tier_speedup}  # fmt: skip
        for option, value in numbers.items():
            if not math.isfinite(value):
                raise SimulationError(f"{option} {value} is not a finite number.")
        wanted = dict.fromkeys([*BUILT_IN, policy] if compare else [policy])
        try:
            policies = [find(name) for name in wanted if name]
        except ValueError as error:
            raise SimulationError(f"--policy {policy}: {error}.") from None
        from .simulate import report

        read = read_trace(trace)
        setting = SimulationSetting(
            policy=policies[0], capacity_bytes=capacity_bytes(capacity, read), idle_seconds=idle_seconds,
            wait_seconds=wait_seconds, lease_seconds=lease_seconds, replicas=replicas, holders=holders,
            tier_bytes=capacity_bytes(tier, read, "--tier") if tier else 0, tier_speedup=tier_speedup,
        )  # fmt: skip
        outcomes = {each.name: simulate_trace(read, replace(setting, policy=each)) for each in policies}
        if as_json:
            print(json.dumps(report.as_json(read, setting, outcomes)))
        else:
            report.console().print(report.table(read, setting, outcomes))
            for sentence in report.failures(outcomes):
                print(sentence)


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="The file to write. A name that ends in .gz is gzipped.")],
    models: Annotated[int, typer.Option(help="Number of models.", min=1, max=10**6)] = Workload.models,
    requests: Annotated[int, typer.Option(help="Approximate number of requests.", min=1)] = Workload.requests,
    hours: Annotated[float, typer.Option(help="Length of the trace.", min=0.01)] = Workload.hours,
    zipf: Annotated[
        float, typer.Option(help="Exponent: the model of rank r gets calls in proportion to 1/r^zipf.", min=0, max=10)
    ] = Workload.zipf,
    nightly: Annotated[
        float, typer.Option(help="Share of models that only a nightly batch calls.", min=0, max=1)
    ] = Workload.nightly,
    periodic: Annotated[
        float, typer.Option(help="Share of models that timers call.", min=0, max=1)
    ] = Workload.periodic,
    seed: Annotated[int, typer.Option(help="Seed. The same seed generates the same trace.")] = Workload.seed,
) -> None:
    """Write a synthetic trace: Zipf's law, day and night, bursts, a nightly batch, timers."""
    with _refusing(SimulationError):
        zoo = Workload(models, requests, hours, zipf, nightly=nightly, periodic=periodic, seed=seed)
        made = make_trace(zoo)
        write_trace(made, out, f"A synthetic zoo: {zoo}")
        from .simulate.report import about

        print(f"{out}: {about(made)}")


async def _serve(policy: EvictionPolicy) -> bool:
    await policy.start()
    if 0 in (policy.options.lease_port, policy.options.admin_port):
        # Only with port 0. Otherwise only the log is written.
        print("ready " + " ".join(f"{name}={port}" for name, port in policy.ports.items()), flush=True)
    return await policy.run_until_stopped()


def capacity_bytes(text: str, trace: Trace, option: str = "--capacity") -> int:
    """Return a capacity in bytes. Raises SimulationError if `text` is not one."""
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
    problem = f"{option} {text} is not a size above 0" if written else f"{option} is missing"
    raise SimulationError(
        f"{problem}. Set it to bytes (9663676416, 9Gi, 500M), or to a share of all footprints (40%), above 0."
    )


@contextmanager
def _refusing(*wrong: type[Exception]) -> Iterator[None]:
    try:
        yield
    except wrong as error:
        print(error, file=sys.stderr)
        raise SystemExit(WRONG_INPUT) from None


if __name__ == "__main__":
    app(prog_name="python -m tidegate_eviction")
