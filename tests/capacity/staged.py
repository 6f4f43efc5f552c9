"""A definition brought up on this machine: real Tritons, policies and a proxy, set as its rendered ConfigMaps say.

Its pools run on processors, its replicas on addresses of loopback. What differs from a cluster is where files lie and
which ports there are.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate_contracts import eviction_process, proxy_process, routing
from tidegate_contracts.eviction import EvictionSettings, Tuning
from tidegate_proxy.access.api_keys import hash_line, new_key

from lab.demo.visitor import Visitor
from lab.local_plane.policy import Policy, policy, triton_options, write_settings
from lab.local_plane.process import free_ports
from lab.local_plane.proxy import Proxy, proxy, write_tables
from lab.local_plane.repository import Model
from lab.local_plane.triton import Triton, triton
from rollout.render import render
from stacks.stack import Definition

HERE = Path(__file__).parent
PROGRAM = HERE / "worker.py"
MIB = 1 << 20
PROCESS_MIB = 21  # What a model takes besides what it holds, and a bit: lab/demo/zoo.py.
CALLER = "notebooks"
VECTOR = ("TYPE_FP32", "-1")
TUNING = Tuning(tolerance_bytes=16 * MIB, retry_most_seconds=10)


@dataclass(frozen=True)
class Worker:
    """A model of a stage."""

    name: str
    mebibytes: int  # All that it takes.
    seconds: float = 0.0  # That an answer takes.
    rate: float = 1000.0  # Megabytes a second at which its weights are read.

    def write(self, repository: Path) -> None:
        numbers = {"mebibytes": self.mebibytes - PROCESS_MIB, "seconds": self.seconds, "rate": self.rate}
        more = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in numbers.items()
        )
        Model(self.name, PROGRAM, [("INPUT", *VECTOR)], [("OUTPUT", *VECTOR)], more).write(repository)


@dataclass(frozen=True)
class Replica:
    """One pod of a pool."""

    pod: str
    triton: Triton
    policy: Policy


@dataclass
class Staged:
    """A stack that runs here."""

    definition: Definition
    namespace: str
    proxy: Proxy
    replicas: Sequence[Replica]
    visitor: Visitor = field(repr=False)

    def targets(self) -> list[tuple[str, dict[str, str]]]:
        """Return what Prometheus is to ask, each address with the labels that PodMonitors give it."""
        found = [(self.proxy.admin, {"pod": "inference-proxy-0"})]
        for each in self.replicas:
            found.append((f"{each.triton.host}:{each.triton.metrics_port}", {"pod": each.pod}))
            found.append((each.policy.admin, {"pod": each.pod}))
        return [(address, {"namespace": self.namespace, **labels}) for address, labels in found]


@contextmanager
def staged(root: Path, definition: Definition, workers: Sequence[Worker]) -> Iterator[Staged]:
    """Run the definition's only stack below a folder; it ends with the block."""
    (stack,) = definition.stacks
    repository, models = root / "models", [each.name for each in workers]
    for each in workers:
        each.write(repository)
    maps = {each["metadata"]["name"]: each for each in render(stack, definition).objects if each["kind"] == "ConfigMap"}
    (tables,) = (each["data"] for each in maps.values() if proxy_process.ROUTING_FILE in each["data"])
    table = routing.RoutingTable.model_validate_json(tables[proxy_process.ROUTING_FILE])
    assert {each.name for each in table.models} == {*models}
    replicas: list[Replica] = []
    places: dict[str, dict[str, Any]] = {}
    with ExitStack() as running:
        for _, server, pool in stack.pools():
            name, ports, count = f"{server.name}-{pool.name}", free_ports(5), pool.replicas or 1
            said = maps[f"{name}-eviction"]["data"][eviction_process.SETTINGS_FILE]
            settings = EvictionSettings.model_validate_json(said)
            settings = settings.model_copy(update={"repository": str(repository), "tuning": TUNING})
            for number in range(count):
                folder, host = root / f"{name}-{number}", f"127.0.0.{number + 1}"
                write_settings(folder, settings)
                at = running.enter_context(triton(folder, repository, None, triton_options(folder), ports[:3], host))
                beside = running.enter_context(policy(folder, at, (ports[3], ports[4]), ["--drain-seconds", "0"]))
                replicas.append(Replica(folder.name, at, beside))
            places[pool.name] = {
                "host": f"replicas-{count}", "http_port": ports[0], "grpc_port": ports[1], "lease_port": ports[3]
            }  # fmt: skip
        servers = tuple(
            each.model_copy(update={"pools": tuple(pool.model_copy(update=places[pool.name]) for pool in each.pools)})
            for each in table.servers
        )
        door, key = root / "proxy", new_key()
        (door / "api-keys").mkdir(parents=True)
        (door / "api-keys" / CALLER).write_text(f"{hash_line(key)}\n", "utf-8")
        access = routing.AccessTable.model_validate_json(tables[proxy_process.ACCESS_FILE])
        write_tables(door, table.model_copy(update={"servers": servers}), access)
        says = {"environment": table.environment, "api_keys": "true", "drain_seconds": "1", "log_level": "info"}
        at_door = running.enter_context(proxy(door, settings=says, packages=[str(HERE / "names")]))
        yield Staged(definition, stack.namespace, at_door, replicas, Visitor([at_door.http], key))
