from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import grpc
from tidegate_contracts import lease
from tritonclient.grpc import service_pb2 as pb

from lab.local_plane.process import free_ports

from ..grpc.harness import Rig, Talk, infer_request, method, replica_of, rig, until
from ..http.upstream import upstream
from .standin import Site

MODELS = ("echo", "slow", "hang", "many", "other")


@contextmanager
def plane(root: Path, replicas: int = 1, **knobs: object) -> Iterator[tuple[Rig, list[Site]]]:
    """A proxy, its replicas, and a policy for each, all on the proxy's own loop."""
    here = [Site(f"127.0.0.{each + 1}", **knobs) for each in range(replicas)]  # type: ignore[arg-type]
    [port] = free_ports(1)
    pool = {"loading": "on-demand", "lease_port": port}
    with rig(root, replicas, MODELS, pool=pool, request_timeout_seconds=5, concurrency=64) as running:
        stack = AsyncExitStack()
        for site in here:
            site.policy = running.do(stack.enter_async_context(upstream(site.decide, site.host, port)))
        yield running, here
        running.do(stack.aclose())


def leases(running: Rig) -> dict[str, int]:
    pool = next(pool for pool in running.proxy.config.routes.pools.values() if pool.leases is not None)
    assert pool.leases is not None
    held = pool.leases.table.models
    return running.on_loop(lambda: {model: sum(x.in_flight for x in each.leases) for model, each in held.items()})  # type: ignore[no-any-return]


def test_a_cold_model_is_loaded_once_and_warm_calls_send_no_lease_request(tmp_path: Path) -> None:
    with plane(tmp_path, lease_seconds=30, load_seconds=0.2) as (running, [site]):
        infer, metadata = method(running.channel(), "ModelInfer"), running.metadata()
        futures = [infer.future(infer_request(), metadata=metadata, timeout=5) for _ in range(30)]
        assert {replica_of(future.result()) for future in futures} == {"a"}
        for _ in range(20):
            infer(infer_request(), metadata=metadata, timeout=5)
        assert (site.loads["echo"], len(site.acquires)) == (1, 1)
        assert leases(running) == {"echo": 0}


def test_a_stream_has_leases_on_all_its_models_for_as_long_as_it_is_open(tmp_path: Path) -> None:
    with plane(tmp_path, 2, lease_seconds=0.5) as (running, here):
        talk = Talk(running)
        [place] = {replica_of(talk.exchange(model)) for model in ("echo", "other", "slow", "echo")}
        site = here["ab".index(place)]
        assert site.resident == {"echo", "other", "slow"}
        until(lambda: leases(running) == {"echo": 1, "other": 1, "slow": 1})
        count = len(site.renewals)
        until(lambda: len(site.renewals) > count + 8)  # longer than a lease without a message
        used = {name: use.in_flight for name, use in site.renewals[-1].models.items()}
        assert used == {"echo": 1, "other": 1, "slow": 1}
        talk.end()
        assert not list(talk.call)
        until(lambda: sorted(site.released) == ["echo", "other", "slow"])


def test_a_streams_next_model_without_memory_at_its_replica_ends_it_with_busy(tmp_path: Path) -> None:
    with plane(tmp_path) as (running, [site]):
        talk = Talk(running)
        talk.exchange()
        site.room = 1
        talk.send(infer_request("other"))
        assert talk.code() is grpc.StatusCode.UNAVAILABLE
        assert "other is not available on the stream" in talk.call.details()
        talk.end()
        until(lambda: leases(running) == {"echo": 0})


def test_an_inspection_loads_nothing(tmp_path: Path) -> None:
    with plane(tmp_path, resident={"many"}, refuses={"other": lease.Quarantined(why="it failed")}) as (running, [site]):
        channel, metadata = running.channel(), running.metadata()
        until(lambda: bool(site.renewals))
        ready = method(channel, "ModelReady")
        found = {
            model: ready(pb.ModelReadyRequest(name=model), metadata=metadata, timeout=5).ready
            for model in ("many", "other", "echo")
        }
        assert found == {"many": True, "other": False, "echo": False}  # the policy does not know `echo`
        statistics = method(channel, "ModelStatistics")
        assert not statistics(pb.ModelStatisticsRequest(name="echo"), metadata=metadata, timeout=5).model_stats
        assert not site.acquires
        found = statistics(pb.ModelStatisticsRequest(name="many"), metadata=metadata, timeout=5).model_stats
        assert [each.name for each in found] == ["many"]
        assert method(channel, "ModelMetadata")(pb.ModelMetadataRequest(name="echo"), metadata=metadata, timeout=5)
        assert site.loads == {"echo": 1}
