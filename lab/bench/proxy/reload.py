"""How much slower the slowest hundredth of requests is while a table of 10 000 models is read and taken over."""

import statistics
import threading
from pathlib import Path

from tidegate_contracts.proxy_process import ROUTING_FILE

from lab.local_plane.proxy import proxy, write_tables
from tests.proxy.rigs.issuer import Issuer
from tests.proxy.rigs.tables import GROUP, access_table, routing_table

from .contestants import Cores
from .load import Call, load

MANY = 10_000
_EVERY_SECONDS = 1.0
_SECONDS = 4.0
_TURNS = 3


def reload_ratio(folder: Path, upstream: int, issuer: Issuer, cores: Cores) -> float:
    """Return the p99 while tables are taken over as fast as the proxy looks for them, by the p99 while none is."""
    models = ["simple", *(f"model-{number}" for number in range(MANY - 1))]
    tables = [routing_table(upstream, upstream, names) for names in (models, [*models, "one-more"])]
    texts = [table.model_dump_json(by_alias=True) for table in tables]
    write_tables(folder, tables[0], access_table([issuer]))
    headers = {"Authorization": f"Bearer {issuer.token('bench', [GROUP])}", "Content-Type": "application/json"}
    call = Call("/v2/models/simple/infer", b'{"inputs":[]}', headers)
    ratios = []
    with proxy(folder, cores.measured) as ours:
        for _ in range(_TURNS):
            stopped = threading.Event()

            def replace(stopped: threading.Event = stopped) -> None:
                number = 0
                while not stopped.wait(_EVERY_SECONDS):
                    number += 1
                    new = folder / "new"
                    new.write_text(texts[number % 2], "utf-8")
                    new.replace(folder / "routing" / ROUTING_FILE)

            before = load(ours.http, call, _SECONDS, 32, cores.rest, folder)
            replacing = threading.Thread(target=replace)
            replacing.start()
            try:
                meanwhile = load(ours.http, call, _SECONDS, 32, cores.rest, folder)
            finally:
                stopped.set()
                replacing.join()
            ratios.append(meanwhile.p99 / before.p99)
    return statistics.median(ratios)
