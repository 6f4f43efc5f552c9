"""Where it plays: replicas of Dynamo in pools, a proxy before them, and somebody with OpenAI's own client."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts import routing
from tidegate_contracts.openai import served_as
from tidegate_proxy.access.api_keys import hash_line, new_key
from tidegate_proxy.upstream.replica import LOOKUP_SECONDS

from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.named_proxy import write_names
from lab.local_plane.process import HOST, Process
from lab.local_plane.proxy import Proxy, proxy, write_tables

from ..playing import until

CHAT, CODE, FAST = "chat", "code", "fast"
SHARES = {1: 20, 2: 80}  # Of the versions of CHAT, in per cent.
REPLICAS = 2  # Of CHAT.
SERVED = {CHAT: [served_as(CHAT, version) for version in SHARES], CODE: [CODE], FAST: [FAST]}  # By pool.
CALLER, MINUTE = "visitor", 100_000_000
SEEN_SECONDS = LOOKUP_SECONDS + 0.5  # In which a proxy has seen that a replica has come, or that it goes.
SPEEDS: dict[str, tuple[str, ...]] = {FAST: ("--speedup-ratio", "1000")}
"""Options of a pool's workers: without them they have the pace of a GPU."""


@dataclass
class LanguagePlane:
    """All of it, while it runs."""

    root: Path
    key: str = field(default_factory=new_key, repr=False)
    proxy: Proxy = field(init=False)
    pools: dict[str, dict[str, Dynamo]] = field(default_factory=lambda: {pool: {} for pool in SERVED})
    """The replicas of each pool, by their names."""
    _listed: dict[str, list[str]] = field(default_factory=lambda: {pool: [] for pool in SERVED})
    _stacks: dict[str, ExitStack] = field(default_factory=dict)
    _made: int = 0

    @property
    def names(self) -> Path:
        """File of what pools' names stand for."""
        return self.root / "names" / "pools.json"

    # --- what a cluster does
    def start(self, pool: str) -> str:
        """Run one more replica of a pool, and list it once it is ready, as a cluster does; return its name."""
        self._made += 1
        name = f"{pool}-{self._made}"
        self._stacks[name] = stack = ExitStack()
        made = stack.enter_context(dynamo(self.root / name, SERVED[pool], SPEEDS.get(pool, ())))
        self.pools[pool][name] = made
        self._list(pool, *self._listed[pool], name)
        return name

    def stop(self, pool: str, name: str) -> None:
        """End a replica as a cluster does: it leaves its name first, then what is in flight there ends."""
        self._list(pool, *(each for each in self._listed[pool] if each != name))
        time.sleep(SEEN_SECONDS)
        replica = self.pools[pool].pop(name)
        until(f"{name} has no calls", lambda: not any(map(replica.in_flight, SERVED[pool])), 60)
        self._stacks.pop(name).close()

    def limit(self, tokens_per_minute: int | None = None) -> None:
        """Have the proxy limit how many tokens a caller may use of a model."""
        limit = routing.RateLimit(requests_per_minute=MINUTE, burst=MINUTE, tokens_per_minute=tokens_per_minute)
        rule = routing.AccessRule(
            name="all", principals=(CALLER,), actions=("infer", "inspect"), servers=("*",), models=("*",)
        )
        write_tables(self.root / "proxy", routing.AccessTable(rules=(rule,), rate_limit=limit))

    def _list(self, pool: str, *names: str) -> None:
        self._listed[pool] = [*names]
        ports = {
            _host(each): [(HOST, self.pools[each][name].http_port) for name in listed]
            for each, listed in self._listed.items()
        }
        write_names(self.names, ports)

    def write(self) -> None:
        """Write all that the proxy reads."""
        folder = self.root / "proxy"
        self.names.parent.mkdir(parents=True)
        (folder / "api-keys").mkdir(parents=True)
        (folder / "api-keys" / CALLER).write_text(hash_line(self.key) + "\n", "utf-8")
        servers = tuple(
            routing.Server(
                name=name,
                kind="openai",
                pools=(routing.Pool(name="main", host=_host(name), http_port=8000, loading="preload"),),
            )
            for name in SERVED
        )
        shares = {CHAT: tuple(routing.VersionShare(version=each, weight=share) for each, share in SHARES.items())}
        models = tuple(
            routing.Model(name=name, server=name, pool="main", versions=shares.get(name, ())) for name in SERVED
        )
        write_tables(folder, routing.RoutingTable(environment="demo", servers=servers, models=models))
        self.limit()
        self._list(CHAT)

    # --- what callers see
    def client(self, **options: Any) -> openai.OpenAI:
        """Return OpenAI's own client, which does not come again by itself unless that is said."""
        options = {"max_retries": 0, "timeout": 30} | options
        return openai.OpenAI(base_url=f"http://{self.proxy.http}/v1", api_key=self.key, **options)

    def count(self, family: str, **labels: str) -> float:
        """Return what the proxy has counted, over all series with these labels."""
        text = urllib3.request("GET", f"http://{self.proxy.admin}/metrics").data.decode()
        found = (each for each in text_string_to_metric_families(text) if each.name == f"tidegate_proxy_{family}")
        samples = (sample for each in found for sample in each.samples if sample.name.endswith("_total"))
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    @property
    def parts(self) -> dict[str, Process]:
        """Its processes, by their names."""
        found = {"proxy": self.proxy.process}
        for name, made in (each for pool in self.pools.values() for each in pool.items()):
            found |= {name: made.process} | {f"{name} {model}": worker for model, worker in made.workers.items()}
        return found

    def check(self) -> None:
        """Raise ProcessError when one of the processes has ended by itself."""
        for process in self.parts.values():
            process.check()

    def close(self) -> None:
        """End all replicas."""
        with ExitStack() as all_of_it:
            for stack in self._stacks.values():
                all_of_it.push(stack)


def _host(pool: str) -> str:
    return f"{pool}.pool"


@contextmanager
def language_plane(root: Path, pools: Sequence[str] = (*[CHAT] * REPLICAS, CODE)) -> Iterator[LanguagePlane]:
    """Run it, with a replica for each pool that is named; it ends with the block.

    Raises CannotBeHadError and ProcessError.
    """
    made = LanguagePlane(root)
    made.write()
    try:
        for pool in pools:
            made.start(pool)
        with proxy(root / "proxy", settings={"api_keys": "true"}, names=made.names) as made.proxy:
            yield made
    finally:
        made.close()
