"""The contestants: each in front of the same upstream and on the same core, one under load at a time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.bench.report import progress
from lab.local_plane.process import CannotBeHadError, Server
from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.peers import PEERS
from tests.proxy.rigs.tables import access_table, routing_table

OURS, DIRECT = "proxy", "direct"


@dataclass(frozen=True)
class Cores:
    """One core for the contestant, another for its callers and the upstream."""

    measured: int
    rest: int


def cores() -> Cores:
    """Return two cores, or the same one twice if there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        progress("NOT MEASURED AS INTENDED: there is only one core, which callers share.")
    return Cores(usable[0], usable[-1])


@contextmanager
def contestants(
    names: Sequence[str], folder: Path, ports: tuple[int, int], models: Sequence[str], issuer: Issuer, core: int
) -> Iterator[dict[str, Server]]:
    """Start contestants in front of an upstream (its ports: HTTP, gRPC). Report and skip those that cannot run."""
    with ExitStack() as stack:
        found: dict[str, Server] = {}
        for name in names:
            place = folder / name
            try:
                if name == OURS:
                    write_tables(place, routing_table(*ports, models), access_table([issuer]))
                    found[name] = stack.enter_context(proxy(place, core))
                else:
                    found[name] = stack.enter_context(PEERS[name](place, ports[0], core))
            except CannotBeHadError as error:
                progress(f"NOT MEASURED: {name} CANNOT RUN HERE ({error}), so its ratios are null.")
        yield found
