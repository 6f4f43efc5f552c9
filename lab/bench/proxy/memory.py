"""How much memory the proxy takes: idle, and with many models in its table and many callers in its caches."""

import http.client
import time
from pathlib import Path

from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.tables import GROUP, access_table, routing_table

from .contestants import Cores
from .load import LoadError

MANY = 10_000
_SETTLED_SECONDS = 1.0
_MEGABYTE = 1 << 20


def idle_megabytes(folder: Path, upstream: int, issuer: Issuer, cores: Cores) -> float:
    """Return what a proxy takes that has just started."""
    write_tables(folder, routing_table(upstream, upstream, ["simple"]), access_table([issuer]))
    with proxy(folder, cores.measured) as ours:
        time.sleep(_SETTLED_SECONDS)
        return ours.process.resident_bytes() / _MEGABYTE


def busy_megabytes(folder: Path, upstream: int, issuer: Issuer, cores: Cores, many: int = MANY) -> float:
    """Return what it takes with so many models, when as many callers have called, each another model."""
    models = [f"model-{number}" for number in range(many)]
    write_tables(folder, routing_table(upstream, upstream, models), access_table([issuer]))
    with proxy(folder, cores.measured) as ours:
        asking = http.client.HTTPConnection(ours.http, timeout=30)
        for number, model in enumerate(models):
            token = issuer.token(f"caller-{number}", [GROUP])
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            asking.request("POST", f"/v2/models/{model}/infer", b'{"inputs":[]}', headers)
            found = asking.getresponse()
            body = found.read()
            if found.status != 200:
                raise LoadError(f"{ours.http} answers {found.status} to caller {number}: {body[:500]!r}")
        asking.close()
        time.sleep(_SETTLED_SECONDS)
        return ours.process.resident_bytes() / _MEGABYTE
