"""Where it plays: a definition as it is rendered, replicas of Dynamo for pods, a proxy, and OpenAI's own client."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from tidegate_contracts import proxy_process, routing
from tidegate_contracts.openai import served_as
from tidegate_proxy.access.api_keys import hash_line, new_key
from tidegate_proxy.upstream.replica import LOOKUP_SECONDS

from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.named_proxy import write_names
from lab.local_plane.process import HOST, Parts, Process
from lab.local_plane.prometheus import counted
from lab.local_plane.proxy import Proxy, proxy, write_tables
from rollout.render import render
from stacks.definition.openai import DynamoSettings, OpenaiServer
from stacks.validate import read_definition

from ..playing import until

DEFINITION = Path(__file__).with_name("inference.yaml")
CHAT, CODE, FAST = "chat", "code", "fast"  # Its models.
NEWER, OF_CODE, OF_FAST = "chat-green", "code-main", "fast-main"  # Pools of it.
CALLER = "visitor"
PROXY = "proxy"  # What it is called among the parts.
SEEN_SECONDS = LOOKUP_SECONDS + 0.5  # In which a proxy has seen that a replica has come, or that it goes.


@dataclass
class _Pool:
    """What the definition says of a pool, and its replicas, by the names of their pods."""

    host: str
    count: int
    options: tuple[str, ...]  # Of its workers.
    served: list[str]
    replicas: dict[str, Dynamo] = field(default_factory=dict)


@dataclass
class LanguagePlane(Parts):
    """All of it, while it runs."""

    root: Path
    key: str = field(default_factory=new_key, repr=False)
    proxy: Proxy = field(init=False)
    pools: dict[str, _Pool] = field(default_factory=dict)
    table: routing.RoutingTable = field(init=False)
    _access: routing.AccessTable = field(init=False)
    _stacks: dict[str, ExitStack] = field(default_factory=dict)
    _made: int = 0

    @property
    def names(self) -> Path:
        """File of what pools' names stand for."""
        return self.root / "names" / "pools.json"

    @property
    def shares(self) -> dict[int, int]:
        """Per cent of the calls of CHAT, by version."""
        return {each.version: each.weight for model in self.table.models for each in model.versions}

    # --- what a cluster does
    def start_proxy(self, ports: tuple[int, int, int] | None = None) -> None:
        """Run the proxy, at these ports where it takes the place of another."""
        self._stacks[PROXY] = stack = ExitStack()
        made = proxy(self.root / PROXY, settings={"api_keys": "true"}, ports=ports, names=self.names)
        self.proxy = stack.enter_context(made)

    def start_again(self, part: str) -> None:
        """Start a part that has ended, in its old place. Raises ProcessError."""
        pod, _, model = part.partition(" ")
        if part == PROXY:
            self._stacks[PROXY].close()
            self.start_proxy(self.proxy.ports)
            return
        [replica] = (pool.replicas[pod] for pool in self.pools.values() if pod in pool.replicas)
        if model:
            replica.start_again(model)
        else:
            replica.start_frontend_again()

    def start(self, name: str) -> str:
        """Run one more replica of a pool, and list it once it is ready, as a cluster does; return its name."""
        pool = self.pools[name]
        pod = next(pod for number in range(len(pool.replicas) + 1) if (pod := f"{name}-{number}") not in pool.replicas)
        self._made += 1
        self._stacks[pod] = stack = ExitStack()
        made = stack.enter_context(dynamo(self.root / f"{pod}.{self._made}", pool.served, pool.options))
        pool.replicas[pod] = made
        self._list()
        return pod

    def stop(self, name: str, pod: str) -> None:
        """End a replica as a cluster does: it leaves its name first, then what is in flight there ends."""
        pool = self.pools[name]
        replica = pool.replicas.pop(pod)
        self._list()
        time.sleep(SEEN_SECONDS)
        until(f"{pod} has no calls", lambda: not any(map(replica.in_flight, pool.served)), 60)
        self._stacks.pop(pod).close()

    def limit(self, tokens_per_minute: int | None = None) -> None:
        """Have the proxy limit how many tokens a caller may use of a model."""
        limit = self._access.rate_limit.model_copy(update={"tokens_per_minute": tokens_per_minute})
        write_tables(self.root / PROXY, self._access.model_copy(update={"rate_limit": limit}))

    def _list(self) -> None:
        ports = {pool.host: [(HOST, each.http_port) for each in pool.replicas.values()] for pool in self.pools.values()}
        write_names(self.names, ports)

    def write(self) -> None:
        """Write all that the proxy reads, as the definition has it."""
        definition = read_definition(DEFINITION)
        (stack,) = definition.stacks
        maps = (each["data"] for each in render(stack, definition).objects if each["kind"] == "ConfigMap")
        (tables,) = (each for each in maps if proxy_process.ROUTING_FILE in each)
        self.table = routing.RoutingTable.model_validate_json(tables[proxy_process.ROUTING_FILE])
        self._access = routing.AccessTable.model_validate_json(tables[proxy_process.ACCESS_FILE])
        hosts = {(server.name, pool.name): pool.host for server in self.table.servers for pool in server.pools}
        for _, server, pool in stack.pools():
            served = [
                name
                for model in self.table.models
                if (model.server, model.pool) == (server.name, pool.name)
                for name in [served_as(model.name, each.version) for each in model.versions] or [model.name]
            ]
            engine = server.openai if isinstance(server, OpenaiServer) else None
            options = engine.extra_arguments if isinstance(engine, DynamoSettings) else ()
            self.pools[f"{server.name}-{pool.name}"] = _Pool(
                hosts[server.name, pool.name], pool.replicas or 1, options, served
            )
        folder = self.root / PROXY
        self.names.parent.mkdir(parents=True)
        (folder / "api-keys").mkdir(parents=True)
        (folder / "api-keys" / CALLER).write_text(hash_line(self.key) + "\n", "utf-8")
        write_tables(folder, self.table)
        self.limit()
        self._list()

    # --- what callers see
    def client(self, **options: Any) -> openai.OpenAI:
        """Return OpenAI's own client, which does not come again by itself unless that is said."""
        options = {"max_retries": 0, "timeout": 30} | options
        return openai.OpenAI(base_url=f"http://{self.proxy.http}/v1", api_key=self.key, **options)

    def count(self, family: str, **labels: str) -> float:
        """Return what the proxy has counted, over all series with these labels."""
        return counted(self.proxy.admin, f"tidegate_proxy_{family}_total", **labels)

    @property
    def parts(self) -> dict[str, Process]:
        """Its processes, by their names."""
        found = {PROXY: self.proxy.process}
        for name, made in (each for pool in self.pools.values() for each in pool.replicas.items()):
            found |= {name: made.process} | {f"{name} {model}": worker for model, worker in made.workers.items()}
        return found


@contextmanager
def language_plane(root: Path) -> Iterator[LanguagePlane]:
    """Run it, but for the pool that only the figures need; it ends with the block.

    Raises CannotBeHadError and ProcessError.
    """
    made = LanguagePlane(root)
    made.write()
    try:
        for name, pool in made.pools.items():
            for _ in range(pool.count if name != OF_FAST else 0):
                made.start(name)
        made.start_proxy()
        yield made
    finally:
        made.close()
