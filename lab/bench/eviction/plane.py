"""What live figures are measured on: a real Triton, the policy beside it, proxies in front, models that hold memory.

The proxies hold rules and limits, as always. The same Triton is known to them twice: as an on-demand server, on whose
models they need leases, and as a preloading one, on whose they need none.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts import eviction_process, routing
from tidegate_contracts import triton as triton_contract
from tidegate_contracts.eviction import Tuning

from lab.bench.proxy.load import post
from lab.local_plane.environment import ON_DEMAND, POOL, PRELOAD, LocalEnvironment, Plan
from lab.local_plane.process import ProcessError, pinned
from tests.policies.eviction.rigs import zoo

MIB = 1 << 20
CALLER = "bench"
LEASE_SECONDS, WAIT_SECONDS = 3, 20
REQUEST = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
RIGHT = b'"data":[7]'
CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Ballast:
    """A model, and how much it holds; its process takes some 18 MiB more."""

    name: str
    mib: int = 1


class Plane(LocalEnvironment):
    """All of it, while it runs."""

    @property
    def headers(self) -> dict[str, str]:
        """What a caller sends along."""
        return {"Content-Type": "application/json", "Authorization": f"Bearer {self.keys[CALLER]}"}

    def first_answer(self, model: str) -> float:
        """Call a model through the first proxy; return the seconds until its answer. ProcessError for a wrong one."""
        began = time.perf_counter()
        answer = post(self.proxies[0].http, infer_path(model), self.headers, REQUEST)
        return _right(model, answer, time.perf_counter() - began)

    def bare_answer(self, model: str) -> float:
        """Load a model and call it, with Triton alone; return the seconds that both took."""
        began = time.perf_counter()
        self._control(f"models/{model}/load")
        answer = post(self.on_demand.http, f"/v2/models/{model}/infer", {}, REQUEST)
        return _right(model, answer, time.perf_counter() - began)

    def unload(self, model: str) -> None:
        """Unload a model that `bare_answer` loaded, and wait until it is gone."""
        self._control(f"models/{model}/unload")
        self.on_demand.process.wait_until(lambda: self.states().get(model) not in ("READY", "UNLOADING"))

    def states(self) -> dict[str, str]:
        """Return what Triton's own index says of every model."""
        found = json.loads(self._control("index"))
        return {each["name"]: each.get("state", "") for each in found}

    def routing_table(self) -> routing.RoutingTable:
        """Return what the proxies are told: the same pool a second time, as one that preloads."""
        table = super().routing_table()
        ((pool,),) = (server.pools for server in table.servers)
        plain = pool.model_copy(update={"loading": "preload", "lease_port": None})
        again = routing.Server(name=PRELOAD, kind="triton", pools=(plain,))
        models = (*table.models, *(model.model_copy(update={"server": PRELOAD}) for model in table.models))
        return table.model_copy(update={"servers": (*table.servers, again), "models": models})

    def _control(self, what: str) -> bytes:
        path = f"/v2/repository/{what}"
        secret = self.policy.root / "control" / Path(eviction_process.CONTROL_SECRET_FILE).name
        headers = {triton_contract.RESTRICTED_KEY: secret.read_text("utf-8").strip()}
        status, body = post(self.on_demand.http, path, headers, b"{}")
        if status != 200:
            raise ProcessError(f"Triton answers {status} to {path}: {body[:300].decode(errors='replace')}")
        return body


@contextmanager
def plane(
    models: Sequence[Ballast],
    capacity_mib: int,
    others: Sequence[Ballast] = (),
    cores: tuple[int | None, int | None] = (None, None),
) -> Iterator[Plane]:
    """Run a plane with room for so much; it ends with the block. Raises CannotBeHadError and ProcessError.

    `others` lie in the repository, and the policy knows nothing of them. `cores`: the proxies', and everybody else's.
    """
    plan = Plan(
        name="bench",
        models=tuple(routing.Model(name=each.name, server=ON_DEMAND, pool=POOL) for each in models),
        callers=(CALLER,),
        preloads=False,
        proxies=1,
        policy="cost-aware",
        capacity_bytes=capacity_mib * MIB,
        idle_seconds=0,
        lease_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
        tuning=Tuning(tolerance_bytes=8 * MIB),
    )
    front, rest = cores
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        made = Plane(Path(folder), plan)
        for each in (*models, *others):
            zoo.model(made.repository(ON_DEMAND), each.name, each.mib)
        try:
            with pinned(rest):
                made.start_on_demand()
                made.start_policy()
            with pinned(front):
                made.start_proxies()
            yield made
        finally:
            made.close()


def infer_path(model: str, server: str = ON_DEMAND) -> str:
    """Return where the proxies take a model's requests."""
    return f"/servers/{server}/v2/models/{model}/infer"


def _right(model: str, answer: tuple[int, bytes], seconds: float) -> float:
    status, body = answer
    if status != 200 or RIGHT not in body:
        raise ProcessError(f"{model} answers {status}: {body[:300].decode(errors='replace')}")
    return seconds
