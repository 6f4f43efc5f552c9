import asyncio
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tidegate_contracts import metrics, proxy_process
from tidegate_contracts.metrics import OTHERS
from tidegate_proxy.telemetry.meter import Meter

from ..rigs.tables import CALLER, access_table
from .running_proxy import (
    BODY,
    METADATA,
    MODEL,
    Caller,
    RunningProxy,
    request,
    routing_table,
    running_proxy,
    served,
    until,
)
from .upstream import hang, only, reset, upstream

pytestmark = pytest.mark.anyio


async def scrape(here: RunningProxy) -> dict[str, Metric]:
    """Return the metrics as Prometheus reads them. Prometheus' own parser checks the format."""
    reply = await here.ask(request(proxy_process.METRICS_PATH, method="GET"), side="admin")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    return {metric.name: metric for metric in text_string_to_metric_families(reply.body.decode())}


def value(found: dict[str, Metric], sample: str, **labels: str) -> float:
    values = [
        each.value
        for metric in found.values()
        for each in metric.samples
        if each.name == f"tidegate_proxy_{sample}" and labels.items() <= each.labels.items()
    ]
    assert len(values) < 2, f"{sample} {labels} is ambiguous"
    return values[0] if values else 0.0


async def test_calls_are_counted_with_their_bytes_and_seconds(here: RunningProxy) -> None:
    for data in (request(), request(), METADATA, request(f"/v2/models/{MODEL}/ready")):
        await here.ask(data)
    found = await scrape(here)
    call = {"server": "vision", "model": MODEL, "protocol": "http"}
    assert value(found, "requests_total", status="200", **call) == 2, "a metadata request is not an inference"
    assert value(found, "request_bytes_total", **call) == 2 * len(BODY)
    assert value(found, "response_bytes_total", **call) == 2 * len(b'{"ok":1}')
    assert value(found, "request_seconds_count", **call) == 2
    assert value(found, "request_seconds_bucket", le="+Inf", **call) == 2
    assert 0 < value(found, "request_seconds_sum", **call) < 60
    buckets = [each.value for each in found["tidegate_proxy_request_seconds"].samples if "le" in each.labels]
    assert buckets == sorted(buckets)
    assert value(found, "problems_total", type="method-not-allowed") == 1
    for each in found.values():
        assert each.name.startswith("tidegate_proxy_")
        assert each.documentation


async def test_refusals_are_counted_by_their_kind(tmp_path: Path) -> None:
    async with served(tmp_path, access=access_table((), 60, 2)) as here:
        for data in (request(), request(), request(), request(key=None), request("/v2/models/absent/infer")):
            await here.ask(data)
        await here.ask(request("/v2", method="GET", key=None))
        await here.ask(b"nonsense\r\n\r\n")
        found = await scrape(here)
        for kind, number in (("rate-limited", 1), ("unauthenticated", 2), ("unknown", 1), ("malformed", 1)):
            assert value(found, "problems_total", type=kind) == number, kind
        assert value(found, "requests_total", status="429") == 1


async def test_calls_in_flight_and_in_the_queue_are_counted(tmp_path: Path) -> None:
    async with served(tmp_path, hang, concurrency=1) as here:
        calls = [asyncio.ensure_future(here.ask()) for _ in range(3)]
        await until(lambda: here.proxy.shared.limiter.waiting == 2 and here.replica.requests)
        found = await scrape(here)
        assert (value(found, "in_flight"), value(found, "waiting")) == (1, 2)
        assert value(found, "replica_in_flight", replica=f"127.0.0.1:{here.replica.port}") == 1
        for each in calls:
            each.cancel()
        await until(lambda: not here.proxy.shared.open_calls)
        found = await scrape(here)
        assert (value(found, "in_flight"), value(found, "waiting"), value(found, "replica_in_flight")) == (0, 0, 0)


async def test_errors_and_breakers_of_replicas_are_counted(here: RunningProxy) -> None:
    await here.ask()
    assert value(await scrape(here), "breaker", state="closed") == 1
    here.replica.act = reset
    for _ in range(5):
        assert (await here.ask()).status == 502
    found = await scrape(here)
    assert value(found, "upstream_errors_total", server="vision", how="reset") == 5
    states = {each.labels["state"]: each.value for each in found["tidegate_proxy_breaker"].samples}
    assert [state for state, is_so in states.items() if is_so] in (["open"], ["half-open"])
    assert value(found, "requests_total", status="502") == 5


async def test_loaded_and_refused_files_are_counted(tmp_path: Path, here: RunningProxy) -> None:
    found = await scrape(here)
    for file in ("routing", "access", "api-keys"):
        assert value(found, "config_generation", file=file) == 1
        assert value(found, "config_good", file=file) == 1
    [_, rules, keys] = here.proxy.config.watched
    here.write("access.json", "nonsense")
    await rules.look()
    (tmp_path / "api-keys" / "eve").write_text("# none\n")
    await keys.look()
    found = await scrape(here)
    assert value(found, "config_failures_total", file="access") == 1
    assert value(found, "config_good", file="access") == 0
    assert value(found, "config_generation", file="access") == 1
    assert value(found, "config_generation", file="api-keys") == 2
    assert value(found, "pool_ready", server="vision", pool="main") == 1


async def test_callers_make_no_labels(here: RunningProxy, caller: Caller) -> None:
    await here.ask()
    await here.ask(request("/v2/models/absent/infer", key=None))
    await here.ask(request("/v2/models/absent/infer"))
    before = sum(len(metric.samples) for metric in (await scrape(here)).values())
    for number in range(100):
        await caller.send(request(f"/servers/s{number}/v2/models/m{number}/versions/{number + 1}/infer"))
        assert (await caller.reply()).status == 404
        await caller.send(request(f"/v2/models/{MODEL}/versions/{number + 1}/infer", X_Request_Id=f"id-{number}"))
        assert (await caller.reply()).status == 200
    assert sum(len(metric.samples) for metric in (await scrape(here)).values()) == before


async def test_the_metrics_are_those_of_the_catalogue(tmp_path: Path) -> None:
    async with served(tmp_path, otlp_endpoint="http://127.0.0.1:9", metrics_callers=9) as here:
        await here.ask()
        await here.ask(request("/v2/models/absent/infer"))
        found = await scrape(here)
    catalogue = {each.name: each for each in metrics.PROXY.values()}
    assert {name: (each.type, each.documentation) for name, each in found.items()} == {
        name: (each.kind, each.text) for name, each in catalogue.items()
    }
    for name, each in found.items():
        assert all({*sample.labels} - {"le"} == {*catalogue[name].labels} for sample in each.samples), name


@pytest.mark.parametrize("most", [0, 1])
async def test_the_number_of_models_with_a_label_is_limited(tmp_path: Path, most: int) -> None:
    async with served(tmp_path, models=(MODEL, "b", "c"), metrics_models=most) as here:
        here.replica.act = only("/c/", reset)
        for name in (MODEL, "b", "c", MODEL):
            await here.ask(request(f"/v2/models/{name}/infer"))
        found = await scrape(here)
        call = {"server": "vision", "protocol": "http"}
        assert value(found, "request_seconds_count", model=MODEL, **call) == 2 * most
        assert value(found, "request_seconds_count", model="*", **call) == 4 - 2 * most
        assert value(found, "model_problems_total", server="vision", model="*", type="upstream-failed") == 1


async def test_a_removed_model_releases_its_label_and_models_without_one_are_counted(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, models=("a", "b", "c"), metrics_models=1) as here:
        for name in ("a", "b", "c"):
            await here.ask(request(f"/v2/models/{name}/infer"))
        assert value(await scrape(here), "models_unnamed") == 2
        here.write("routing.json", routing_table(("b", "c")).model_dump_json(by_alias=True))
        await here.proxy.config.watched[0].look()
        for name in ("b", "c"):
            await here.ask(request(f"/v2/models/{name}/infer"))
        found = await scrape(here)
        named = {each.labels["model"] for each in found["tidegate_proxy_requests"].samples} - {OTHERS}
        assert len(named) == 1
        assert named < {"b", "c"}
        assert value(found, "models_unnamed") == 1
        assert value(found, "requests_total", model=OTHERS) == 3


async def test_callers_have_labels_only_if_configured(tmp_path: Path) -> None:
    for most, names in ((0, []), (1, [CALLER])):
        async with served(tmp_path / str(most), metrics_callers=most) as here:
            await here.ask()
            found = await scrape(here)
            samples = found["tidegate_proxy_caller_requests"].samples
            assert [(each.labels["principal"], each.labels["status"], each.value) for each in samples] == [
                (name, "200", 1) for name in names
            ]


@given(st.lists(st.tuples(st.text(), st.text())), st.integers(1, 5))
def test_the_first_callers_have_names_and_the_others_are_counted_together(
    callers: list[tuple[str, str]], most: int
) -> None:
    meter = Meter(callers=most)
    for principal, source in callers:
        meter.called(principal, source, "http", 200)
    first = list(dict.fromkeys(callers))[:most]
    assert sum(meter.callers.values()) == len(callers)
    assert {key[:2] for key in meter.callers} <= {*first, (OTHERS, "")}


async def test_metrics_of_a_replica_disappear_with_it(tmp_path: Path) -> None:
    async with upstream(reset) as bad, upstream() as good, running_proxy(tmp_path, bad) as here:
        assert (await here.ask()).problem == "upstream-failed"
        where = {"type": "upstream-failed", "replica": f"127.0.0.1:{bad.port}"}
        assert value(await scrape(here), "problems_total", **where) == 1
        await bad.close()
        here.leads_to(good)
        await here.look_up()
        await until(lambda: [good.port] == [each.address[1] for each in here.pool.replicas])
        assert value(await scrape(here), "problems_total", **where) == 0


async def test_a_hand_edited_table_is_reported_until_it_matches_the_rollout(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        assert value(await scrape(here), "config_edited", file="routing") == 0, "the time of the edit is unknown"
        file = next(here.root.rglob(proxy_process.ROUTING_FILE))
        text = file.read_bytes()
        file.with_name(file.name + proxy_process.CHECKSUM).write_text(sha256(text).hexdigest() + "\n")
        watched = next(each for each in here.proxy.config.watched if each.name == "routing")
        for content, is_edited in ((text + b"\n", True), (text, False)):
            file.write_bytes(content)
            await watched.load()
            assert value(await scrape(here), "config_edited", file="routing") == is_edited
        assert value(await scrape(here), "config_edited", file="api-keys") == 0
