"""What live figures are measured on: a real Triton, the policy beside it, proxies in front, models that hold memory.

The proxies verify tokens and hold rules, as always. The same Triton is known to them twice: as an on-demand server, on
whose models they need leases, and as a preloading one, on whose they need none.
"""

import http.client
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts import eviction_process, routing
from tidegate_contracts import triton as triton_contract
from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Tuning

from lab.bench.report import NotHereError
from lab.local_plane.policy import Policy, policy, triton_options, write_settings
from lab.local_plane.process import HOST
from lab.local_plane.proxy import ENVIRONMENT, Proxy, proxy, write_tables
from lab.local_plane.triton import Triton, triton
from tests.policies.eviction.rigs import zoo
from tests.policies.eviction.rigs.caller import Holder
from tests.proxy.rigs.issuer import issuer
from tests.proxy.rigs.tables import GROUP, access_table

MIB = 1 << 20
POOL = "small"
ON_DEMAND, PRELOADED = "on-demand", "preloaded"
"""The same Triton, as the proxies know it: with leases, and without."""
LEASE_SECONDS, WAIT_SECONDS = 3, 20
REQUEST = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
RIGHT = b'"data":[7]'
CALL_SECONDS = 60.0
_TOKEN_SECONDS = 3600
_LOADING = re.compile(r"loading: ([^:\s]+):\d+")


@dataclass(frozen=True)
class Ballast:
    """A model, and how much it holds; its process takes some 18 MiB more."""

    name: str
    mib: int = 1
    seconds: float = 0.0
    """How long a load waits, as for a disk, on top of what it works."""
    declared_mib: int | None = None


@dataclass(frozen=True)
class Pool:
    """What the policy is told; as a pool has it by default, where it is not said, but for leases that end sooner."""

    models: Sequence[Ballast]
    capacity_mib: int
    lease_seconds: int = LEASE_SECONDS
    residency_factor: float | None = None

    def settings(self, repository: Path) -> EvictionSettings:
        """Return the settings: cost-aware, without an idle limit."""
        managed = (
            ManagedModel(name=each.name, footprint_bytes=each.declared_mib and each.declared_mib * MIB)
            for each in self.models
        )
        return EvictionSettings(
            policy="cost-aware",
            repository=str(repository),
            capacity_bytes=self.capacity_mib * MIB,
            idle_seconds=0,
            lease_seconds=self.lease_seconds,
            wait_seconds=WAIT_SECONDS,
            models=tuple(managed),
            tuning=Tuning(tolerance_bytes=8 * MIB, residency_factor=self.residency_factor),
        )


@dataclass(frozen=True)
class Plane:
    """All of it, while it runs."""

    triton: Triton
    policy: Policy
    proxies: Sequence[Proxy]
    token: str
    _secret: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What a caller sends along."""
        return {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}

    def first_answer(self, model: str) -> float:
        """Call a model through the first proxy; return the seconds until its answer. NotHereError for a wrong one."""
        began = time.perf_counter()
        answer = post(self.proxies[0].http, infer_path(model), self.headers)
        return _right(model, answer, time.perf_counter() - began)

    def bare_answer(self, model: str) -> float:
        """Load a model and call it, with Triton alone; return the seconds that both took."""
        began = time.perf_counter()
        self._control(f"models/{model}/load")
        answer = post(self.triton.http, f"/v2/models/{model}/infer", {})
        return _right(model, answer, time.perf_counter() - began)

    def unload(self, model: str) -> None:
        """Unload a model that `bare_answer` loaded, and wait until it is gone."""
        self._control(f"models/{model}/unload")
        self.triton.process.wait_until(lambda: self.states().get(model) not in ("READY", "UNLOADING"))

    def states(self) -> dict[str, str]:
        """Return what Triton's own index says of every model."""
        found = json.loads(self._control("index"))
        return {each["name"]: each.get("state", "") for each in found}

    def loads_logged(self) -> Counter[str]:
        """Return how often Triton began to load each model, as its log says."""
        return Counter(_LOADING.findall(self.triton.process.log.read_text("utf-8", errors="replace")))

    def loads_counted(self) -> float:
        """Return how many loads there were, as the policy's metrics say."""
        text = Holder(self.policy).ask("GET", eviction_process.METRICS_PATH, address=self.policy.admin)[1]
        names = ("tidegate_eviction_load_seconds_count", "tidegate_eviction_load_failures_total")
        samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
        return sum(each.value for each in samples if each.name in names)

    def _control(self, what: str) -> bytes:
        path = f"/v2/repository/{what}"
        status, body = post(self.triton.http, path, {triton_contract.RESTRICTED_KEY: self._secret}, b"{}")
        if status != 200:
            raise NotHereError(f"Triton answers {status} to {path}: {body[:300].decode(errors='replace')}")
        return body


@contextmanager
def plane(
    pool: Pool,
    others: Sequence[Ballast] = (),
    proxies: int = 1,
    cores: tuple[int | None, int | None] = (None, None),
) -> Iterator[Plane]:
    """Run a plane; it ends with the block. Raises CannotBeHadError and ProcessError.

    `others` lie in the repository, and the policy knows nothing of them. `cores`: the proxies', and everybody else's.
    """
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        repository = root / "models"
        repository.mkdir()
        for each in (*pool.models, *others):
            zoo.model(repository, each.name, each.mib, each.seconds)
        front, rest = cores
        write_settings(root, pool.settings(repository))
        options = triton_options(root)
        server = stack.enter_context(triton(root / "triton", repository, rest, options))
        beside = stack.enter_context(policy(root, server, rest, options=["--drain-seconds", "0"]))
        provider = stack.enter_context(issuer())
        table = _routing_table(server, beside.lease_port, [each.name for each in pool.models])
        fronts = []
        for number in range(proxies):
            write_tables(root / f"proxy-{number}", table, access_table([provider]))
            fronts.append(stack.enter_context(proxy(root / f"proxy-{number}", front)))
        token = provider.token("bench", [GROUP], _TOKEN_SECONDS)
        secret = (root / "control" / Path(eviction_process.CONTROL_SECRET_FILE).name).read_text("utf-8").strip()
        yield Plane(server, beside, fronts, token, secret)


def infer_path(model: str, server: str = ON_DEMAND) -> str:
    """Return where the proxies take a model's requests."""
    return f"/servers/{server}/v2/models/{model}/infer"


def post(where: str, path: str, headers: dict[str, str], body: bytes = REQUEST) -> tuple[int, bytes]:
    """Send a request on a connection of its own; return status and body, 0 and why where there is no answer."""
    asking = http.client.HTTPConnection(where, timeout=CALL_SECONDS)
    try:
        asking.request("POST", path, body, headers)
        found = asking.getresponse()
        return found.status, found.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error).encode()
    finally:
        asking.close()


def _right(model: str, answer: tuple[int, bytes], seconds: float) -> float:
    status, body = answer
    if status != 200 or RIGHT not in body:
        raise NotHereError(f"{model} answers {status}: {body[:300].decode(errors='replace')}")
    return seconds


def _routing_table(server: Triton, lease_port: int, models: Sequence[str]) -> routing.RoutingTable:
    ports = {"http_port": server.http_port, "grpc_port": server.grpc_port}
    pools = {
        PRELOADED: routing.Pool(name=POOL, host=HOST, loading="preload", **ports),
        ON_DEMAND: routing.Pool(name=POOL, host=HOST, loading="on-demand", lease_port=lease_port, **ports),
    }
    servers = tuple(routing.Server(name=name, kind="triton", pools=(pool,)) for name, pool in pools.items())
    known = tuple(routing.Model(name=model, server=name, pool=POOL) for name in pools for model in models)
    return routing.RoutingTable(environment=ENVIRONMENT, servers=servers, models=known)
