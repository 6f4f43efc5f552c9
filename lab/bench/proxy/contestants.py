"""The contestants: each in front of the same upstream, on the same core, one under load at a time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.bench.report import say
from lab.local_plane.process import CannotBeHadError, Server
from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.peers import PEERS
from tests.proxy.rigs.tables import access_table, routing_table

OURS, DIRECT = "proxy", "direct"


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
                say(f"NOT MEASURED: {name} CANNOT BE HAD HERE ({error}), so that what is held against it is null.")
        yield found
