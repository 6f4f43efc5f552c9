"""The whole data plane, as processes on loopback: two Tritons, the eviction policy, two proxies, and the zoo."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidegate_contracts import routing
from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Tuning
from tidegate_proxy.access.api_keys import hash_line, new_key

from local_plane.policy import Policy, policy, triton_options, write_settings
from local_plane.process import HOST, Process
from local_plane.proxy import Proxy, proxy, write_tables
from local_plane.repository import Model, publish
from local_plane.triton import Triton, triton

from . import zoo

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = "demo"
CALLER = "visitor"
PRELOAD, ON_DEMAND, POOL = "preload", "on-demand", "main"
PROXIES = 2
POLL_SECONDS = 1
IDLE_SECONDS, LEASE_SECONDS, WAIT_SECONDS = 1, 2, 8
"""Idle limits are minutes on a platform (300 s), leases 9 s; here it is seconds, so that nobody has to wait."""
TUNING = Tuning(
    # Models here are as small as the noise that other slices ignore; and nobody waits long for the second try.
    tolerance_bytes=16 * zoo.MIB,
    failures_most=2,
    retry_most_seconds=10,
    failure_backoff_seconds=0.2,
)


def settings(repository: Path) -> EvictionSettings:
    """Return what the policy is told about its pool."""
    models = (
        ManagedModel(name=name, footprint_bytes=zoo.DECLARED.get(name), idle_seconds=zoo.IDLE_SECONDS.get(name))
        for name in zoo.ON_DEMAND
    )
    return EvictionSettings(
        policy="lru-idle",
        repository=str(repository),
        capacity_bytes=zoo.CAPACITY_BYTES,
        idle_seconds=IDLE_SECONDS,
        lease_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
        models=tuple(models),
        tuning=TUNING,
    )


def tables(preload: Triton, on_demand: Triton, lease_port: int) -> tuple[routing.RoutingTable, routing.AccessTable]:
    """Return the tables of the proxies: every model is known, and the visitor may do all."""
    servers = tuple(
        routing.Server(
            name=name,
            kind="triton",
            pools=(
                routing.Pool(
                    name=POOL,
                    host=HOST,
                    http_port=server.http_port,
                    grpc_port=server.grpc_port,
                    loading="preload" if name == PRELOAD else "on-demand",
                    lease_port=None if name == PRELOAD else lease_port,
                ),
            ),
        )
        for name, server in ((PRELOAD, preload), (ON_DEMAND, on_demand))
    )
    models = [(name, PRELOAD) for name in zoo.PRELOADED] + [(name, ON_DEMAND) for name in zoo.ON_DEMAND]
    rule = routing.AccessRule(
        name="visitors", principals=(CALLER,), actions=("infer", "inspect"), servers=("*",), models=("*",)
    )
    return (
        routing.RoutingTable(
            environment=ENVIRONMENT,
            servers=servers,
            models=tuple(routing.Model(name=name, server=server, pool=POOL) for name, server in models),
        ),
        routing.AccessTable(rules=(rule,), rate_limit=routing.RateLimit(requests_per_minute=600_000, burst=600_000)),
    )


@dataclass
class Platform:
    """All of it, while it runs. Its processes are started by the main thread only: they end with who started them."""

    root: Path
    key: str
    """The API key of the visitor."""
    preload: Triton = field(init=False)
    on_demand: Triton = field(init=False)
    policy: Policy = field(init=False)
    proxies: list[Proxy] = field(default_factory=list)
    _stacks: dict[str, ExitStack] = field(default_factory=dict)

    def repository(self, server: str) -> Path:
        """Return the folder of a server's models."""
        return self.root / server / "models"

    def publish(self, server: str, model: Model) -> None:
        """Publish a model to a server."""
        publish(model, self.repository(server), self.root / server / "staging")

    def start_preload(self) -> None:
        """Start the preload Triton: it has every model of its repository, and looks for new ones."""
        options = ["--model-control-mode=poll", f"--repository-poll-secs={POLL_SECONDS}", "--exit-on-error=false"]
        stack = self._stack(PRELOAD)
        self.preload = stack.enter_context(triton(self.root / PRELOAD, self.repository(PRELOAD), options=options))

    def start_on_demand(self) -> None:
        """Start the on-demand Triton: it has no model, and only the policy may load some. Anew it has its old ports."""
        before = getattr(self, "on_demand", None)
        ports = None if before is None else (before.http_port, before.grpc_port, before.metrics_port)
        made = triton(
            self.root / ON_DEMAND, self.repository(ON_DEMAND), options=triton_options(self._policy_root), ports=ports
        )
        self.on_demand = self._stack(ON_DEMAND).enter_context(made)

    def start_policy(self) -> None:
        """Start the eviction policy. Anew it has its old ports."""
        before = getattr(self, "policy", None)
        ports = (0, 0) if before is None else (before.lease_port, before.admin_port)
        write_settings(self._policy_root, settings(self.repository(ON_DEMAND)))
        # At its end nobody needs leases any more.
        made = policy(self._policy_root, self.on_demand, ports=ports, options=["--drain-seconds", "0"])
        self.policy = self._stack("policy").enter_context(made)

    def start_proxies(self) -> None:
        """Start the proxies, which know nothing of each other."""
        said = {"environment": ENVIRONMENT, "api_keys": "true", "drain_seconds": "1"}
        for number in range(PROXIES):
            root = self.root / f"proxy-{number + 1}"
            root.mkdir()
            write_tables(root, *tables(self.preload, self.on_demand, self.policy.lease_port))
            (root / "api-keys").mkdir()
            (root / "api-keys" / CALLER).write_text(hash_line(self.key) + "\n", "utf-8")
            self.proxies.append(self._stack(root.name).enter_context(proxy(root, settings=said)))

    def kill_policy(self) -> None:
        """Kill the eviction policy, without a chance to say anything."""
        self._kill("policy", self.policy.process)

    def kill_on_demand(self) -> None:
        """Kill the on-demand Triton with all its models, as the kernel does when memory is out."""
        self._kill(ON_DEMAND, self.on_demand.process)

    def check(self) -> None:
        """Raise ProcessError when one of the processes has ended by itself."""
        for process in self._processes():
            process.check()

    def close(self) -> None:
        """End all of it, at the same time."""
        for process in self._processes():
            process.popen.terminate()
        with ExitStack() as all_of_it:
            for stack in self._stacks.values():
                all_of_it.push(stack)

    def _processes(self) -> list[Process]:
        parts = [getattr(self, name, None) for name in ("preload", "on_demand", "policy")]
        return [part.process for part in (*parts, *self.proxies) if part is not None]

    @property
    def _policy_root(self) -> Path:
        return self.root / "policy"

    def _stack(self, name: str) -> ExitStack:
        return self._stacks.setdefault(name, ExitStack())

    def _kill(self, name: str, process: Process) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        self._stacks[name].close()


@contextmanager
def platform(root: Path) -> Iterator[Platform]:
    """Run all of it below a folder; it ends with the block. Raises CannotBeHadError and ProcessError."""
    made = Platform(root, new_key())
    for server in (PRELOAD, ON_DEMAND):
        made.repository(server).mkdir(parents=True)
    made.publish(PRELOAD, zoo.RESIDENT.model())
    for model in zoo.on_demand():
        made.publish(ON_DEMAND, model)
    try:
        made.start_preload()
        made.start_on_demand()
        made.start_policy()
        made.start_proxies()
        yield made
    finally:
        made.close()
