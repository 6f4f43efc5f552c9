"""A definition brought up on this machine: real Tritons, policies and a proxy, set as its rendered ConfigMaps say.

Its pools run on processors, its replicas on addresses of loopback. What differs from a cluster is where files lie and
which ports there are.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate_contracts import eviction_process, proxy_process, routing
from tidegate_contracts.eviction import EvictionSettings, Tuning
from tidegate_eviction.staging.stager import MODELS
from tidegate_proxy.access.api_keys import hash_line, new_key

from lab.demo.visitor import Visitor
from lab.local_plane.named_proxy import write_names
from lab.local_plane.policy import Policy, policy, triton_options, write_settings
from lab.local_plane.process import free_ports
from lab.local_plane.proxy import Proxy, proxy, write_tables
from lab.local_plane.repository import Model
from lab.local_plane.slow_volume import SlowVolume, forget
from lab.local_plane.triton import Triton, triton
from rollout.render import render
from stacks.stack import Definition

HERE = Path(__file__).parent
PROGRAM = HERE / "worker.py"
MIB = 1 << 20
PROCESS_MIB = 21  # What a model takes besides what it holds, and a bit: lab/demo/zoo.py.
CALLER = "notebooks"
DOORS = 2  # Sets of connections that the visitor has to the one proxy.
VECTOR = ("TYPE_FP32", "-1")
TUNING = Tuning(tolerance_bytes=16 * MIB, retry_most_seconds=10)


@dataclass(frozen=True)
class Worker:
    """A model of a stage."""

    name: str
    mebibytes: int  # All that it takes.
    seconds: float = 0.0  # That an answer takes.
    file: int = 0  # Of the mebibytes, those that are weights in a file.

    def write(self, repository: Path) -> None:
        """Write it into a repository that nobody reads yet."""
        held = self.mebibytes - self.file - PROCESS_MIB
        said = {"mebibytes": held, "seconds": self.seconds, "volume": repository.resolve()}
        Model(self.name, PROGRAM, [("INPUT", *VECTOR)], [("OUTPUT", *VECTOR)], parameters=said).write(repository)
        if self.file:
            (repository / self.name / "1" / "weights.bin").write_bytes(os.urandom(self.file * MIB))


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

    @property
    def pods(self) -> dict[str, str]:
        """The pod that each host and port with metrics belongs to: Triton and its policy are in one."""
        servers = {f"{each.triton.host}:{each.triton.metrics_port}": each.pod for each in self.replicas}
        return {
            self.proxy.admin: "inference-proxy-0",
            **servers,
            **{each.policy.admin: each.pod for each in self.replicas},
        }


@contextmanager
def staged(
    root: Path, definition: Definition, workers: Sequence[Worker], volume: SlowVolume | None = None
) -> Iterator[Staged]:
    """Run the definition's only stack below a folder, its models on a volume there; it ends with the block."""
    (stack,) = definition.stacks
    models = [each.name for each in workers]
    repository = (volume.folder if volume else root) / "models"
    for worker in workers:
        worker.write(repository)
    if volume is not None:
        forget(volume.folder)
    maps = {each["metadata"]["name"]: each for each in render(stack, definition).objects if each["kind"] == "ConfigMap"}
    (tables,) = (each["data"] for each in maps.values() if proxy_process.ROUTING_FILE in each["data"])
    table = routing.RoutingTable.model_validate_json(tables[proxy_process.ROUTING_FILE])
    assert {each.name for each in table.models} == {*models}
    replicas: list[Replica] = []
    places: dict[str, dict[str, Any]] = {}
    addresses: dict[str, list[tuple[str, int]]] = {}
    with ExitStack() as running:
        for _, server, pool in stack.pools():
            name, ports, count = f"{server.name}-{pool.name}", free_ports(5), pool.replicas or 1
            said = maps[f"{name}-eviction"]["data"][eviction_process.SETTINGS_FILE]
            settings = EvictionSettings.model_validate_json(said)
            settings = settings.model_copy(update={"repository": str(repository), "tuning": TUNING})
            for number in range(count):
                folder, host, served = root / f"{name}-{number}", f"127.0.0.{number + 1}", repository
                if settings.staging is not None:
                    served = folder / "tier" / MODELS
                    served.mkdir(parents=True)
                    near = settings.staging.model_copy(update={"folder": str(folder / "tier")})
                    settings = settings.model_copy(update={"staging": near})
                write_settings(folder, settings)
                at = running.enter_context(triton(folder, served, None, triton_options(folder), ports[:3], host))
                beside = running.enter_context(policy(folder, at, (ports[3], ports[4]), ["--drain-seconds", "0"]))
                replicas.append(Replica(folder.name, at, beside))
                if volume is not None:
                    volume.slow_down(at.process.pid)
                    volume.slow_down(beside.process.pid)
            addresses[f"{name}.pool"] = [(f"127.0.0.{number + 1}", ports[0]) for number in range(count)]
            places[pool.name] = {
                "host": f"{name}.pool", "http_port": ports[0], "grpc_port": ports[1], "lease_port": ports[3]
            }  # fmt: skip
        servers = tuple(
            each.model_copy(update={"pools": tuple(pool.model_copy(update=places[pool.name]) for pool in each.pools)})
            for each in table.servers
        )
        door, key = root / "proxy", new_key()
        (door / "api-keys").mkdir(parents=True)
        (door / "names").mkdir()
        (door / "api-keys" / CALLER).write_text(f"{hash_line(key)}\n", "utf-8")
        access = routing.AccessTable.model_validate_json(tables[proxy_process.ACCESS_FILE])
        write_tables(door, table.model_copy(update={"servers": servers}), access)
        says = {"environment": table.environment, "api_keys": "true", "drain_seconds": "1", "log_level": "info"}
        says["request_timeout_seconds"] = "60"
        write_names(door / "names" / "pools.json", addresses)
        at_door = running.enter_context(proxy(door, settings=says, names=door / "names" / "pools.json"))
        yield Staged(definition, stack.namespace, at_door, replicas, Visitor([at_door.http] * DOORS, key))
