"""The cost of large tables: the proxy's memory, idle and with many models and callers, and latency during a reload."""

import http.client
import statistics
import time
from itertools import cycle
from pathlib import Path

from tidegate_contracts.proxy_process import ROUTING_FILE
from tidegate_contracts.routing import VersionShare

from lab.local_plane.process import replace_file
from lab.local_plane.proxy import proxy, write_tables
from rollout.tools.running import repeating
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.tables import GROUP, access_table, routing_table

from .contestants import Cores
from .load import Call, LoadError, load

MANY = 10_000
_SETTLED_SECONDS = 1.0
_MEGABYTE = 1 << 20
_OTHER_VERSIONS = (VersionShare(version=1, weight=100),)
_RELOAD_EVERY_SECONDS, _RELOAD_TURNS, _TURN_SECONDS = 1.0, 3, 4.0


def idle_megabytes(folder: Path, upstream: int, issuer: Issuer, cores: Cores) -> float:
    """Return the memory of a proxy after its start."""
    write_tables(folder, routing_table(upstream, upstream, ["simple"]), access_table([issuer]))
    with proxy(folder, cores.measured) as ours:
        time.sleep(_SETTLED_SECONDS)
        return ours.process.resident_bytes() / _MEGABYTE


def busy_megabytes(folder: Path, upstream: int, issuer: Issuer, cores: Cores) -> float:
    """Return its memory with 10,000 models, after as many callers have each called another model."""
    models = [f"model-{number}" for number in range(MANY)]
    write_tables(folder, routing_table(upstream, upstream, models), access_table([issuer]))
    with proxy(folder, cores.measured) as ours:
        asking = http.client.HTTPConnection(ours.http, timeout=30)
        for number, model in enumerate(models):
            call = _call(model, issuer.token(f"caller-{number}", [GROUP]))
            asking.request("POST", call.path, call.body, dict(call.headers))
            found = asking.getresponse()
            body = found.read()
            if found.status != 200:
                raise LoadError(f"{ours.http} answers {found.status} to caller {number}: {body[:500]!r}")
        asking.close()
        time.sleep(_SETTLED_SECONDS)
        return ours.process.resident_bytes() / _MEGABYTE


def reload_ratio(folder: Path, upstream: int, issuer: Issuer, cores: Cores, *, all_changed: bool = False) -> float:
    """Return the p99 while tables are replaced as fast as the proxy reads them, over the p99 without changes. Each
    table adds or removes one model, or changes all."""
    models = ["simple", *(f"model-{number}" for number in range(MANY - 1))]
    tables = [routing_table(upstream, upstream, names) for names in (models, [*models, "one-more"])]
    if all_changed:
        changed = [model.model_copy(update={"versions": _OTHER_VERSIONS}) for model in tables[0].models]
        tables[1] = routing_table(upstream, upstream, changed)
    texts = cycle([table.model_dump_json(by_alias=True) for table in reversed(tables)])
    write_tables(folder, tables[0], access_table([issuer]))
    call = _call("simple", issuer.token("bench", [GROUP]))
    ratios = []

    def reload() -> None:
        replace_file(folder / "routing" / ROUTING_FILE, next(texts))

    with proxy(folder, cores.measured) as ours:
        for _ in range(_RELOAD_TURNS):
            before = load(ours.http, call, _TURN_SECONDS, cores.rest, folder)
            with repeating(reload, pause=_RELOAD_EVERY_SECONDS):
                meanwhile = load(ours.http, call, _TURN_SECONDS, cores.rest, folder)
            ratios.append(meanwhile.p99 / before.p99)
    return statistics.median(ratios)


def _call(model: str, token: str) -> Call:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return Call(f"/v2/models/{model}/infer", b'{"inputs":[]}', headers)
