"""The contestants: each in front of the same upstream, on the same core, one under load at a time."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.bench.report import say
from lab.local_plane.process import HOST, CannotBeHadError, Server, free_ports, listens, running
from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.rigs.issuer import AUDIENCE, Issuer
from tests.proxy.rigs.peers import PEERS, Start
from tests.proxy.rigs.tables import GROUP, access_table, routing_table

ROOT = Path(__file__).resolve().parents[3]
OURS, IDIOMATIC, DIRECT = "proxy", "idiomatic", "direct"


@dataclass(frozen=True)
class Cores:
    """One core for what is measured, another for its callers and what is behind it."""

    measured: int
    rest: int


def cores() -> Cores:
    """Return two cores; one and the same where there is but one."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        say("NOT MEASURED AS IT SHOULD BE: there is one core, and callers take their share of it.")
    return Cores(usable[0], usable[-1])


@contextmanager
def contestants(
    names: Sequence[str], folder: Path, ports: tuple[int, int], models: Sequence[str], issuer: Issuer, core: int
) -> Iterator[dict[str, Server]]:
    """Start these in front of an upstream (its ports: HTTP, gRPC); those that cannot be had are said, and left out."""
    starts: dict[str, Start] = {**PEERS, IDIOMATIC: partial(idiomatic, issuer)}
    with ExitStack() as stack:
        found: dict[str, Server] = {}
        for name in names:
            place = folder / name
            try:
                if name == OURS:
                    write_tables(place, routing_table(*ports, models), access_table([issuer]))
                    found[name] = stack.enter_context(proxy(place, core))
                else:
                    found[name] = stack.enter_context(starts[name](place, ports[0], core))
            except CannotBeHadError as error:
                say(f"NOT MEASURED: {name} CANNOT BE HAD HERE ({error}), so that what is held against it is null.")
        yield found


@contextmanager
def idiomatic(issuer: Issuer, folder: Path, upstream: int, core: int | None = None) -> Iterator[Server]:
    """Run the baseline, which asks the identity provider as the proxy does."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "BASELINE_UPSTREAM": f"http://{HOST}:{upstream}",
        "BASELINE_JWKS": issuer.jwks_url,
        "BASELINE_ISSUER": issuer.url,
        "BASELINE_AUDIENCE": AUDIENCE,
        "BASELINE_GROUP": GROUP,
    }
    command = [sys.executable, "-m", "uvicorn", "lab.bench.proxy.idiomatic:app", "--host", HOST, "--port", str(port)]
    command += ["--no-access-log", "--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    with running("the baseline", command, folder / "log", environment, core) as process:
        process.wait_until(lambda: listens(port))
        yield Server(process, port, port)
