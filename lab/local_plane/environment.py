"""One environment as processes on loopback: a preload Triton (optional), an on-demand one with its policy, proxies."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidegate_contracts import environments, routing
from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Tuning
from tidegate_proxy.access.api_keys import new_key

from .policy import Policy, policy, triton_options, write_settings
from .process import HOST, Parts, Process, replace_file
from .proxy import Proxy, proxy, write_keys, write_tables
from .repository import Model, publish
from .triton import Triton, installed, triton

PRELOAD, ON_DEMAND, POLICY, POOL = "preload", "on-demand", "policy", "main"
PLANE, DATASET = "here", "models"
POLL_SECONDS = 1  # The interval at which a preload Triton polls its repository.
ALL = ("*",)
UNLIMITED = routing.RateLimit(requests_per_minute=600_000, burst=600_000)


@dataclass(frozen=True)
class Plan:
    """The parts of an environment. Idle limits and leases are short by default."""

    name: str
    models: tuple[routing.Model, ...] = ()  # Each on PRELOAD or ON_DEMAND, in POOL.
    callers: tuple[str, ...] = ("visitor",)  # The callers with an API key. They may do everything without `rules`.
    rules: tuple[routing.AccessRule, ...] | None = None
    preloads: bool = True  # Whether it has a preload Triton.
    proxies: int = 1
    policy: str = "lru-idle"
    policy_packages: tuple[str, ...] = ()  # Directories with custom policies.
    capacity_bytes: int = 1 << 30
    idle_seconds: int = 1
    lease_seconds: int = 2
    wait_seconds: int = 8
    tuning: Tuning = field(default_factory=Tuning)
    promotion: environments.Promotion = field(default_factory=environments.Promotion)
    production: bool = False

    def settings(self, repository: Path) -> EvictionSettings:
        return EvictionSettings(
            policy=self.policy,
            repository=str(repository),
            capacity_bytes=self.capacity_bytes,
            idle_seconds=self.idle_seconds,
            lease_seconds=self.lease_seconds,
            wait_seconds=self.wait_seconds,
            models=tuple(_managed(model) for model in self.models if model.server == ON_DEMAND),
            tuning=self.tuning,
        )

    def access(self) -> routing.AccessTable:
        all_of_it = routing.AccessRule(
            name="callers", principals=self.callers, actions=("infer", "inspect"), servers=ALL, models=ALL
        )
        return routing.AccessTable(rules=(all_of_it,) if self.rules is None else self.rules, rate_limit=UNLIMITED)


def _managed(model: routing.Model) -> ManagedModel:
    alike = model.model_dump(include={"name", "idle_seconds", "pinned", "footprint_bytes", "alias"})
    return ManagedModel(**alike, versions=tuple(share.version for share in model.versions))


@dataclass
class LocalEnvironment(Parts):
    """A running environment. Only the main thread may start its processes: they end with the thread that did."""

    root: Path
    plan: Plan
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The API key of each caller, generated for callers without one."""
    preload: Triton = field(init=False)
    on_demand: Triton = field(init=False)
    policy: Policy = field(init=False)
    proxies: list[Proxy] = field(default_factory=list)
    _stacks: dict[str, ExitStack] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Generate keys, and create the directories of the repositories."""
        self.keys = {caller: self.keys.get(caller) or new_key() for caller in self.plan.callers}
        for server in (PRELOAD, ON_DEMAND):
            self.repository(server).mkdir(parents=True, exist_ok=True)

    @property
    def dataset(self) -> Path:
        """The dataset's root directory for clients."""
        return self.root / "dataset"

    @property
    def url(self) -> str:
        return f"http://{self.proxies[0].http}"

    def repository(self, server: str) -> Path:
        return self.dataset / server / "models"

    def staging(self, server: str) -> Path:
        """Return a directory next to it, for incomplete models."""
        return self.dataset / server / "staging"

    def publish(self, server: str, model: Model) -> None:
        publish(model, self.repository(server), self.staging(server))

    def facts(self) -> environments.Environment:
        volume = f"local:{self.dataset}"
        backends = tuple(sorted(each.name for each in installed().backends.iterdir() if each.is_dir()))
        servers = (
            environments.ServerFacts(
                name=name,
                kind="triton",
                location=environments.DatasetLocation(dataset=DATASET, path=f"{name}/models", volume=volume),
                backends=backends,
                pools=(
                    environments.PoolFacts(
                        name=POOL,
                        loading="preload" if name == PRELOAD else "on-demand",
                        gpu=False,
                        memory_bytes=self.plan.capacity_bytes,
                        capacity_bytes=None if name == PRELOAD else self.plan.capacity_bytes,
                        poll_seconds=POLL_SECONDS if name == PRELOAD else None,
                    ),
                ),
            )
            for name in (PRELOAD, ON_DEMAND)
        )
        models = (
            environments.ModelFacts(**model.model_dump(include={*environments.ModelFacts.model_fields}))
            for model in self.plan.models
        )
        here = environments.Plane(name=PLANE, proxy_url=self.url, servers=tuple(servers), models=tuple(models))
        return environments.Environment(
            name=self.plan.name, production=self.plan.production, promotion=self.plan.promotion, planes=(here,)
        )

    def start_preload(self) -> None:
        """Start the preload Triton, which loads every model of its repository, and polls for new ones."""
        poll = f"--repository-poll-secs={POLL_SECONDS}"
        options = ["--model-control-mode=poll", poll, "--exit-on-error=false"]
        made = triton(self.root / PRELOAD, self.repository(PRELOAD), options=options)
        self.preload = self._stack(PRELOAD).enter_context(made)

    def start_on_demand(self) -> None:
        """Start the on-demand Triton without models. Only the policy may load some. A restart keeps the ports."""
        before = getattr(self, "on_demand", None)
        ports = None if before is None else before.ports
        made = triton(
            self.root / ON_DEMAND, self.repository(ON_DEMAND), options=triton_options(self._policy_root), ports=ports
        )
        self.on_demand = self._stack(ON_DEMAND).enter_context(made)

    def start_policy(self) -> None:
        """Start the eviction policy. A restart keeps the ports."""
        before = getattr(self, "policy", None)
        ports = (0, 0) if before is None else (before.lease_port, before.admin_port)
        write_settings(self._policy_root, self.plan.settings(self.repository(ON_DEMAND)))
        # When it ends, no proxy needs leases any more.
        made = policy(
            self._policy_root,
            self.on_demand,
            ports=ports,
            options=["--drain-seconds", "0"],
            packages=self.plan.policy_packages,
        )
        self.policy = self._stack(POLICY).enter_context(made)

    def start_proxies(self) -> None:
        """Start the proxies, which are independent of each other."""
        settings = {"environment": self.plan.name, "api_keys": "true", "drain_seconds": "1"}
        for number in range(1, self.plan.proxies + 1):
            root = self.root / f"proxy-{number}"
            root.mkdir()
            write_tables(root, self.routing_table(), self.plan.access())
            write_keys(root, self.keys)
            self.proxies.append(self._stack(root.name).enter_context(proxy(root, settings=settings)))

    def serve(self, plan: Plan) -> None:
        """Serve another plan's models and rules, as `tidegate up` with another definition would."""
        self.plan = plan
        write_settings(self._policy_root, plan.settings(self.repository(ON_DEMAND)))
        for each in self.proxies:
            write_tables(each.root, self.routing_table(), plan.access())

    def kill(self, part: str) -> None:
        """Kill a process, as the kernel does when memory is exhausted."""
        os.killpg(self.parts[part].pid, signal.SIGKILL)
        self._stack(part).close()

    def close(self) -> None:
        for process in self.parts.values():
            process.popen.terminate()
        with ExitStack() as all_of_it:
            for stack in self._stacks.values():
                all_of_it.push(stack)

    def routing_table(self) -> routing.RoutingTable:
        servers = [(ON_DEMAND, self.on_demand)]
        if self.plan.preloads:
            servers.insert(0, (PRELOAD, self.preload))
        known = tuple(
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
                        lease_port=None if name == PRELOAD else self.policy.lease_port,
                    ),
                ),
            )
            for name, server in servers
        )
        return routing.RoutingTable(environment=self.plan.name, servers=known, models=self.plan.models)

    @property
    def parts(self) -> dict[str, Process]:
        singles = ((name, getattr(self, name.replace("-", "_"), None)) for name in (PRELOAD, ON_DEMAND, POLICY))
        servers = (*singles, *((each.root.name, each) for each in self.proxies))
        return {name: server.process for name, server in servers if server is not None}

    @property
    def pods(self) -> dict[str, str]:
        """The pod of each address with metrics. Triton and its policy are in one pod."""
        on_demand, metrics = f"{ON_DEMAND}-{POOL}-0", f"{HOST}:{self.on_demand.metrics_port}"
        found = {metrics: on_demand, self.policy.admin: on_demand}
        if self.plan.preloads:
            found[f"{HOST}:{self.preload.metrics_port}"] = f"{PRELOAD}-{POOL}-0"
        return found | {each.admin: each.root.name for each in self.proxies}

    @property
    def _policy_root(self) -> Path:
        return self.root / POLICY

    def _stack(self, name: str) -> ExitStack:
        return self._stacks.setdefault(name, ExitStack())


@contextmanager
def local_environment(made: LocalEnvironment) -> Iterator[LocalEnvironment]:
    """Run an environment until the block ends. Raises CannotBeHadError and ProcessError."""
    try:
        if made.plan.preloads:
            made.start_preload()
        made.start_on_demand()
        made.start_policy()
        made.start_proxies()
        yield made
    finally:
        made.close()


def environments_file(folder: Path, made: Sequence[LocalEnvironment]) -> Path:
    """Write `environments.json` of these environments, and return its path."""
    file = folder / "environments.json"
    all_of_them = environments.Environments(environments=tuple(each.facts() for each in made))
    replace_file(file, all_of_them.model_dump_json(by_alias=True, indent=2))  # Another process may be reading it.
    return file


def datasets_variable(made: Sequence[LocalEnvironment]) -> str:
    """Return the value of TIDEGATE_DATASETS for clients on this machine."""
    return ",".join(f"{each.plan.name}/{DATASET}={each.dataset}" for each in made)
