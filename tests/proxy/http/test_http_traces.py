import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidegate_proxy.settings import Tunables
from tidegate_proxy.telemetry import traces

from .running_proxy import BODY, ENVELOPE, KEY, MODEL, PATH, RIG, RunningProxy, model, request, running_proxy, served
from .upstream import Upstream, reset, upstream

pytestmark = pytest.mark.anyio

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
OFTEN, RARELY = replace(RIG, export_seconds=0.05), replace(RIG, export_seconds=60)


def traced(collector: Upstream | int, percent: int = 0, tunables: Tunables = OFTEN) -> dict[str, Any]:
    port = collector if isinstance(collector, int) else collector.port
    return {"otlp_endpoint": f"http://127.0.0.1:{port}", "trace_percent": percent, "tunables": tunables}


async def spans(collector: Upstream, count: int) -> list[dict[str, Any]]:
    """Wait for `count` spans, and return them with their attributes as a mapping."""
    async with asyncio.timeout(10):
        while True:
            found = []
            for received in collector.requests:
                assert received.line == "POST /v1/traces HTTP/1.1"
                assert received.headers["content-type"] == "application/json"
                [resource] = json.loads(received.body)["resourceSpans"]
                assert attributes(resource["resource"])["service.name"] == "tidegate-proxy"
                found += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def attributes(part: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in part["attributes"]}


def parents(replica: Upstream) -> list[str | None]:
    return [each.headers.get("traceparent") for each in replica.requests]


@pytest.mark.parametrize(("path", "body"), [(PATH, BODY), ("/predict", ENVELOPE % BODY)])
async def test_a_sampled_call_has_a_span_between_the_callers_and_the_replicas(
    tmp_path: Path, path: str, body: bytes
) -> None:
    async with upstream() as collector, served(tmp_path, models=[model(MODEL, {4: 100})], **traced(collector)) as here:
        reply = await here.ask(request(path, body, Traceparent=SAMPLED, Tracestate="a=1"))
        [span] = await spans(collector, 1)
        assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT, "a=1")
        assert parents(here.replica) == [f"00-{TRACE}-{span['spanId']}-01"]
        assert here.replica.requests[0].headers["tracestate"] == "a=1"
        assert (span["name"], span["kind"], span["status"]) == ("POST /v2/models/{model}/infer", 2, {})
        assert int(span["startTimeUnixNano"]) < int(span["endTimeUnixNano"])
        assert (
            attributes(span).items()
            >= {
                "http.request.method": "POST",
                "http.route": "/v2/models/{model}/infer",
                "http.response.status_code": "200",
                "http.request.body.size": str(len(body)),
                "http.response.body.size": "8",
                "network.protocol.version": "1.1",
                "tidegate.server": "vision",
                "tidegate.model": MODEL,
                "tidegate.version": "4",
                "tidegate.request_id": reply.headers["x-request-id"],
            }.items()
        )


async def test_the_caller_decides_about_sampling_or_else_the_ratio_does(tmp_path: Path) -> None:
    async with upstream() as collector, served(tmp_path, **traced(collector, 100)) as here:
        await here.ask(request(Traceparent=NOT_SAMPLED))
        await here.ask()
        [span] = await spans(collector, 1)
        assert parents(here.replica) == [NOT_SAMPLED, f"00-{span['traceId']}-{span['spanId']}-01"]
        assert span["parentSpanId"] == ""
    async with upstream() as collector, served(tmp_path, **traced(collector, 0)) as here:
        await here.ask()
    assert parents(here.replica) == [None]
    assert not collector.requests


@pytest.mark.parametrize(
    "bad",
    [
        "", "00-ab-cd-01", SAMPLED.upper(), f"{SAMPLED}-more", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
    ],
)  # fmt: skip
async def test_an_invalid_trace_context_begins_a_new_trace(tmp_path: Path, bad: str) -> None:
    async with upstream() as collector, served(tmp_path, **traced(collector, 100)) as here:
        await here.ask(request(Traceparent=bad, Tracestate="a=1"))
        [span] = await spans(collector, 1)
        assert (span["parentSpanId"], span["traceState"]) == ("", "")
        assert parents(here.replica) == [f"00-{span['traceId']}-{span['spanId']}-01"]
        assert "tracestate" not in here.replica.requests[0].headers


async def test_failed_calls_have_spans_with_an_error(tmp_path: Path) -> None:
    async with upstream() as collector, served(tmp_path, reset, **traced(collector, 100)) as here:
        await here.ask(request(Traceparent=SAMPLED))
        await here.ask(request(Traceparent=SAMPLED, key=None))
        broken, refused = await spans(collector, 2)
        assert (broken["status"], attributes(broken)["error.type"]) == ({"code": 2}, "upstream-failed")
        assert attributes(broken)["http.response.status_code"] == "502"
        assert (refused["status"], attributes(refused)["http.response.status_code"]) == ({}, "401")
        assert "tidegate.version" not in attributes(refused)


async def many(here: RunningProxy, count: int, key: str | None = KEY, status: int = 200) -> None:
    async with here.caller() as caller:
        for _ in range(count):
            await caller.send(request(Traceparent=SAMPLED, key=key))
            assert (await caller.reply()).status == status


@pytest.mark.parametrize("percent", [0, 100])
async def test_callers_without_a_credential_crowd_no_spans_out(tmp_path: Path, percent: int) -> None:
    few = replace(RARELY, waiting_spans=100)
    async with upstream() as collector:
        async with served(tmp_path, **traced(collector, percent, few)) as here:
            await many(here, 20)
            await many(here, 200, None, 401)
        statuses = [attributes(span)["http.response.status_code"] for span in await spans(collector, 20)]
    assert statuses.count("200") == 20
    assert statuses.count("401") == (traces.MOST_REFUSED if percent else 0)


async def test_an_unavailable_collector_costs_limited_memory_and_affects_no_caller(tmp_path: Path) -> None:
    few = replace(RARELY, waiting_spans=20)
    async with upstream() as replica, running_proxy(tmp_path, replica, **traced(1, tunables=few)) as here:
        await many(here, 50)
        assert here.proxy.shared.tracer is not None
        assert here.proxy.shared.tracer.counts == {"exported": 0, "dropped": 30, "failed": 0}
        await here.proxy.shared.tracer.flush(1)
        assert here.proxy.shared.tracer.counts == {"exported": 0, "dropped": 30, "failed": 20}


async def test_the_last_spans_are_sent_at_the_end(tmp_path: Path) -> None:
    small = replace(RARELY, span_batch=4)
    async with upstream() as replica, upstream() as collector:
        async with running_proxy(tmp_path, replica, **traced(collector, tunables=small)) as here:
            await many(here, 10)
        assert len(await spans(collector, 10)) == 10
        assert len(collector.requests) == 3
