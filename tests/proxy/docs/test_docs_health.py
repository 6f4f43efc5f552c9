"""The health table of docs/proxy-api.md matches the proxy's responses in every situation. Stand-ins for Triton servers
are processes that tests kill and stop. No request is sent before the proxy knows them."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import grpc.aio
import pytest
from tidegate.calling.credentials import Credential
from tidegate.status import KnownProxy, collect, overview
from tidegate_contracts import environments as facts
from tidegate_contracts import lease, routing
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Whereabouts

from lab.local_plane.process import Process, free_ports

from ..http.running_proxy import KEY, RunningProxy, request, running_proxy, until
from ..http.test_http_metrics import scrape, value
from ..http.upstream import upstream
from ..residency.standin import Site
from ..rigs.standing_triton import BROKEN, MODELS, standing_triton
from .test_docs_proxy_api import PAGE

pytestmark = pytest.mark.anyio
SERVER, POOL = "vision", "main"
HOSTS = ("127.0.0.1", "127.0.0.2")
TO_AGREE_SECONDS = 3.0
COULD_NOT_LOAD = "its preload pool could not load it"
TABLE = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.split("\n|---|---|\n")[-1], re.MULTILINE))
GROUPS = {name: re.findall(r"(\w+): ((?:`[^`]+`,? ?)+)", cell) for name, cell in TABLE.items()}
FOUND = {name: {each: word for word, of in groups for each in of.split("`")[1::2]} for name, groups in GROUPS.items()}
CELLS = {situation: FOUND["all is well"] | differs for situation, differs in FOUND.items()}


@dataclass
class Plane(RunningProxy):
    loading: Any = "preload"
    model: str = "a"  # The model in the requests.

    async def get(self, path: str, side: str = "http", key: str | None = KEY) -> str:
        return str((await self.ask(request(path, method="GET", key=key), side=side)).status)

    async def over_grpc(self, method: str, message: bytes = b"") -> Any:
        """Return the response message of a method, or the name of its final status."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.proxy.ports['grpc']}") as channel:
            called: Any = channel.unary_unary(method)
            try:
                return await called(message, metadata=(("x-api-key", KEY),))
            except grpc.aio.AioRpcError as error:
                return error.code().name

    async def is_true(self, method: str, message: bytes = b"") -> str:
        found = await self.over_grpc(f"/inference.GRPCInferenceService/{method}", message)
        return str({b"\x08\x01": "true", b"": "false"}.get(found, found))

    async def status(self) -> str:
        pool = facts.PoolFacts(name=POOL, loading=self.loading, gpu=False)
        where = facts.DatasetLocation(dataset="models", volume="v")
        server = facts.ServerFacts(name=SERVER, kind="triton", location=where, pools=(pool,))
        url = f"http://127.0.0.1:{self.proxy.ports['http']}"
        models = (facts.ModelFacts(name=self.model, server=SERVER, pool=POOL),)
        plane = facts.Plane(name="here", proxy_url=url, servers=(server,), models=models)
        known = KnownProxy("test", "here", url, Credential("a test", ("X-API-Key", KEY)), plane)
        of_status, of_top, of_why = await asyncio.to_thread(
            lambda: (collect([known], self.model), overview([known], 3.0), overview([known], 3.0, self.model))
        )
        assert not any(each.error for each in (*of_status, *of_top, *of_why)), "it never fails whole"
        [status] = of_status[0].models
        listed = Whereabouts.model_validate_json((await self.ask(request(WHEREABOUTS_PATH, method="GET"))).body)
        for there in (listed.models, of_top[0].models, of_why[0].models):
            assert [each.state for each in there if each.model == self.model] == [status.state]
        return status.state

    async def ready_metric(self) -> str:
        return f"{value(await scrape(self), 'pool_ready', server=SERVER, pool=POOL):g}"


def of_model(here: Plane) -> bytes:
    return b"\x0a%c%b" % (len(here.model), here.model.encode())


async def check(here: Plane) -> str:
    found = await here.over_grpc("/grpc.health.v1.Health/Check")
    return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}[found]


async def call(here: Plane) -> str:
    reply = await here.ask(request(f"/v2/models/{here.model}/infer"))
    if reply.status == 503:
        assert 1 <= int(reply.headers["retry-after"]) <= 30
        assert ": " in reply.json()["detail"], "it has the reason"
    return str(reply.status)


PROBES: dict[str, Callable[[Plane], Awaitable[str]]] = {
    "/healthz": lambda here: here.get("/healthz", key=None),
    "/readyz": lambda here: here.get("/readyz", key=None),
    "/v2/health/live": lambda here: here.get("/v2/health/live", key=None),
    "/v2/health/ready": lambda here: here.get("/v2/health/ready", key=None),
    "/servers/{server}/v2/health/ready": lambda here: here.get(f"/servers/{SERVER}/v2/health/ready"),
    "/models": lambda here: here.status(),
    "/v2/models/{model}/ready": lambda here: here.get(f"/v2/models/{here.model}/ready"),
    "/v2/models/{model}/stats": lambda here: here.get(f"/v2/models/{here.model}/stats"),
    "/v2/models/{model}/infer": call,
    "ServerReady": lambda here: here.is_true("ServerReady"),
    "ModelReady": lambda here: here.is_true("ModelReady", of_model(here)),
    "grpc.health.v1.Health/Check": check,
    ":8082/readyz/servers/{server}": lambda here: here.get(f"/readyz/servers/{SERVER}", "admin"),
    "tidegate_proxy_pool_ready": lambda here: here.ready_metric(),
}


@dataclass
class Stage:
    here: Plane
    tritons: list[Process]
    policies: list[Site]
    signal: signal.Signals
    tasks: list[asyncio.Future[Any]] = field(default_factory=list)


async def nothing(_: Stage) -> None:
    """Do nothing."""


async def one(stage: Stage) -> None:
    os.killpg(stage.tritons[0].pid, stage.signal)
    await until(lambda: any(each.breaker.is_unresponsive() for each in stage.here.pool.replicas), TO_AGREE_SECONDS)


async def all_of_them(stage: Stage) -> None:
    for triton in stage.tritons:
        os.killpg(triton.pid, stage.signal)
    async with asyncio.timeout(TO_AGREE_SECONDS):
        while await stage.here.get(f"/readyz/servers/{SERVER}", "admin") == "200":
            await asyncio.sleep(0.02)


async def load(stage: Stage) -> None:
    stage.here.model = "cold"
    for each in stage.policies:
        each.load_seconds = 2.0
    stage.tasks.append(asyncio.ensure_future(stage.here.ask(request("/v2/models/cold/infer"))))
    await until(lambda: any(each.loading for each in stage.policies))


async def failing_load(stage: Stage) -> None:
    for each in stage.policies:
        each.refuses["a"] = lease.Quarantined(why="it failed")


async def no_room(stage: Stage) -> None:
    stage.here.model = "cold"
    for each in stage.policies:
        each.resident.clear()
        each.room, each.starving = 0, {"cold": 3.0}


async def broken(stage: Stage) -> None:
    stage.here.model = BROKEN
    for watch in stage.here.pool.watches.values():
        await watch.look()
        assert (BROKEN, "1") in watch.failed


async def no_policy(stage: Stage) -> None:
    stage.here.model = "cold"
    for each in stage.policies:
        await each.policy.close()


async def stopping(stage: Stage) -> None:
    stage.tasks.append(asyncio.ensure_future(stage.here.proxy.stop()))
    await until(lambda: stage.here.proxy.why_not_ready)


SITUATIONS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "all is well": nothing,
    "one replica of two is killed or hangs": one,
    "all replicas are killed or hang": all_of_them,
    "the model is being loaded on demand": load,
    "it failed to load on demand": failing_load,
    "it is loaded on demand, and there is no free memory for it": no_room,
    COULD_NOT_LOAD: broken,
    "it is not in memory, and its eviction policy is gone": no_policy,
    "the proxy is stopping": stopping,
}


Tritons = Callable[[], list[Process]]


@pytest.fixture(scope="module")
def tritons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tritons]:
    """Return a function that starts killed stand-ins again, and returns one for each host."""
    http_port, grpc_port = free_ports(2)
    running: dict[str, Process] = {}
    with ExitStack() as processes:

        def all_running() -> list[Process]:
            for host in HOSTS:
                if host not in running or running[host].popen.poll() is not None:
                    stand_in = standing_triton(tmp_path_factory.mktemp("triton"), host, (http_port, grpc_port))
                    running[host] = processes.enter_context(stand_in)
                running[host].announced_ports()  # it listens
            return [*running.values()]

        yield all_running


@asynccontextmanager
async def staged(folder: Path, tritons: list[Process], loading: str, how: signal.Signals) -> AsyncIterator[Stage]:
    ports = tritons[0].announced_ports()
    async with AsyncExitStack() as stack:
        policies = [Site(host, lease_seconds=30.0) for host in HOSTS]
        policies[1].resident.add("a")
        for site in policies:
            port = policies[0].policy.port
            site.policy = await stack.enter_async_context(upstream(site.decide, site.host, port))
        pool = routing.Pool.model_validate({
            "name": POOL, "host": "pool.test", "loading": loading,
            "http_port": ports["http"], "grpc_port": ports["grpc"],
            "lease_port": policies[0].policy.port if loading == "on-demand" else None,
        })  # fmt: skip
        table = routing.RoutingTable(
            environment="test",
            servers=(routing.Server(name=SERVER, kind="triton", pools=(pool,)),),
            models=tuple(routing.Model(name=name, server=SERVER, pool=POOL) for name in (*MODELS, BROKEN)),
        )
        addresses = [(socket.AF_INET, (host, ports["http"])) for host in HOSTS]
        front = running_proxy(folder / "proxy", *addresses, table=table, kind=Plane, drain_seconds=30)
        here = await stack.enter_async_context(front)
        assert isinstance(here, Plane)
        here.loading = loading
        try:
            stage = Stage(here, tritons, policies, how)
            yield stage
            await asyncio.gather(*stage.tasks)
        finally:
            for triton in tritons:
                os.killpg(triton.pid, signal.SIGCONT)


GONE = ("one replica of two is killed or hangs", "all replicas are killed or hang")
LOADING = {COULD_NOT_LOAD: ("preload",)} | {
    situation: ("on-demand",) for situation in CELLS if "on demand" in situation or "policy" in situation
}
CASES = [
    (situation, loading, how)
    for situation in CELLS
    for loading in LOADING.get(situation, ("preload", "on-demand"))
    for how in ((signal.SIGKILL, signal.SIGSTOP) if situation in GONE else (signal.SIGKILL,))
]


def test_every_probe_and_every_situation_of_the_table_is_tried() -> None:
    assert {*PROBES} == {*FOUND["all is well"]}
    assert list(CELLS) == list(SITUATIONS)


@pytest.mark.parametrize(("situation", "loading", "how"), CASES, ids=lambda each: getattr(each, "name", each))
async def test_each_response_is_that_of_the_table(
    tmp_path: Path,
    tritons: Tritons,
    situation: str,
    loading: str,
    how: signal.Signals,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidegate_proxy.pools")
    async with staged(tmp_path, tritons(), loading, how) as stage:
        here = stage.here
        began = monotonic()
        await SITUATIONS[situation](stage)
        print(f"{situation}, {loading}, {how.name}: {monotonic() - began:.2f} s to know")
        found = {}
        for probe, ask in PROBES.items():
            began = monotonic()
            found[probe] = await ask(here)
            assert monotonic() - began < TO_AGREE_SECONDS, probe
        assert found == CELLS[situation]
        lines = [each for each in caplog.records if each.name == "tidegate_proxy.pools"]
        assert [each.levelname for each in lines] == ["WARNING"] * {GONE[0]: 1, GONE[1]: 2}.get(situation, 0)
