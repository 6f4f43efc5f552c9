"""A candidate version gets copies of a share of the requests; no caller ever notices."""

from collections import Counter
from pathlib import Path
from time import monotonic

import pytest
from tidegate_contracts import routing
from tidegate_proxy.mirror import MOST_BYTES, MOST_COPIES, MOST_OF_A_MODEL

from ..rigs.tables import access_table
from .running_proxy import BODY, MODEL, RunningProxy, request, served, until
from .upstream import Act, Asked, Upstream, answering, hang, only, raw, reset

pytestmark = pytest.mark.anyio

CANDIDATE_HANGS = only("/versions/3/", hang)
OOPS = raw(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
CANDIDATE = f"/v2/models/{MODEL}/versions/3/infer"


def mirrored(percent: int = 100, name: str = MODEL) -> routing.Model:
    return routing.Model(
        name=name,
        server="vision",
        pool="main",
        versions=(routing.VersionShare(version=1, weight=100),),
        mirror=routing.Mirror(version=3, percent=percent),
    )


def copies(replica: Upstream) -> list[Asked]:
    return [asked for asked in replica.asked if "/versions/3/" in asked.line]


def outcomes(here: RunningProxy) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (_, _, outcome), number in here.proxy.meter.mirrored.items():
        counted[outcome] += number
    return dict(counted)


async def test_the_candidate_gets_what_the_served_version_got(tmp_path: Path) -> None:
    async with served(tmp_path, models=[mirrored()]) as here:
        for number in range(3):
            reply = await here.ask(request(Content_Type="application/json", Traceparent=f"00-ab-{number}-01"))
            assert (reply.status, reply.headers["tidegate-model-version"]) == (200, "1")
        await until(lambda: outcomes(here) == {"answered": 3})
        originals = [asked for asked in here.replica.asked if "/versions/1/" in asked.line]
        by_id = {asked.headers["x-request-id"]: asked for asked in copies(here.replica)}
        assert len(by_id) == 3
        for one in originals:
            other = by_id[one.headers["x-request-id"]]
            assert other.line == f"POST {CANDIDATE} HTTP/1.1"
            assert (other.body, other.headers) == (one.body, one.headers)
        await until(lambda: here.proxy.shared.mirror.held == here.proxy.shared.mirror.in_flight == 0)


@pytest.mark.parametrize("percent", [1, 30, 100])
async def test_the_share_is_that_of_the_definition(tmp_path: Path, percent: int) -> None:
    async with served(tmp_path, models=[mirrored(percent)]) as here, here.caller() as caller:
        for _ in range(1000):
            await caller.send(request())
            await caller.reply()
        await until(lambda: not here.proxy.shared.mirror.in_flight)
        chosen = sum(outcomes(here).values())
        assert chosen - outcomes(here).get("too-many", 0) == len(copies(here.replica))
        # Chance goes beyond six and a half standard deviations less than once in ten million runs, even at 1%.
        assert abs(chosen - 10 * percent) <= 6.5 * (10 * percent * (1 - percent / 100)) ** 0.5


async def test_predict_and_chunks_and_bodies_in_pieces_are_copied_whole(tmp_path: Path) -> None:
    async with served(tmp_path, models=[mirrored()]) as here, here.caller() as caller:
        envelope = b'{"inference_server_name":"vision","model_name":"resnet","payload":{ "inputs":[7]}}'
        await caller.send(request("/predict", envelope))
        assert (await caller.reply()).status == 200
        await caller.send(request(Transfer_Encoding="chunked", body=b"5\r\nfirst\r\n"))
        await until(lambda: here.proxy.shared.open_calls and copies(here.replica))
        assert len(copies(here.replica)) == 1  # not before the request is whole
        await caller.send(b"6\r\nsecond\r\n0\r\n\r\n")
        assert (await caller.reply()).status == 200
        whole = request(body=b"x" * 300_000)
        await caller.send(whole[:-200_000])
        await until(lambda: here.proxy.shared.open_calls)
        await caller.send(whole[-200_000:])
        assert (await caller.reply()).status == 200
        await until(lambda: outcomes(here) == {"answered": 3})
        assert [asked.body for asked in copies(here.replica)] == [b'{ "inputs":[7]}', b"firstsecond", b"x" * 300_000]


async def test_what_asks_for_the_candidate_or_inspects_is_not_copied(tmp_path: Path) -> None:
    async with served(tmp_path, models=[mirrored()]) as here:
        assert (await here.ask(request(CANDIDATE))).status == 200
        assert (await here.ask(request(f"/v2/models/{MODEL}/config", method="GET"))).status == 200
        assert (await here.ask(request(key=None))).status == 401
        await until(lambda: not here.proxy.shared.mirror.in_flight)
        assert len(copies(here.replica)) == 1
        assert outcomes(here) == {}


async def test_a_candidate_that_never_answers_costs_bounded_copies_and_no_caller_anything(tmp_path: Path) -> None:
    """Callers' places, limits and connections are theirs alone."""
    body = b"x" * 10_000
    models = [mirrored(), mirrored(name="other")]
    limits = {"access": access_table((), 10_000, 60), "concurrency": 1, "request_timeout_seconds": 5}
    async with served(tmp_path, CANDIDATE_HANGS, models=models, **limits) as here, here.caller() as caller:
        began = monotonic()
        for _ in range(60):  # exactly as many as the caller may send
            await caller.send(request(body=body))
            assert (await caller.reply()).status == 200
        assert monotonic() - began < 4  # none waited for a copy's end
        shared = here.proxy.shared
        await until(lambda: len(copies(here.replica)) == MOST_OF_A_MODEL)
        assert shared.mirror.in_flight == MOST_OF_A_MODEL < MOST_COPIES
        assert shared.mirror.held <= MOST_OF_A_MODEL * (len(body) + 1000)
        assert outcomes(here) == {"too-many": 60 - MOST_OF_A_MODEL}
        # Another model's candidate still gets its copies.
        assert (await here.ask(request("/v2/models/other/infer"))).status == 200
        await until(lambda: any("other/versions/3" in asked.line for asked in here.replica.asked))
        await until(lambda: outcomes(here) == {"too-many": 60 - MOST_OF_A_MODEL, "late": MOST_OF_A_MODEL + 1})
        await until(lambda: (shared.mirror.in_flight, shared.mirror.held, shared.limiter.in_flight) == (0, 0, 0))
        [there] = here.pool.replicas
        assert (there.breaker.failures, there.in_flight) == (0, 0)


@pytest.mark.parametrize(("act", "outcome"), [(reset, "failed"), (OOPS, "refused")])
async def test_a_candidate_that_fails_is_counted_and_opens_no_breaker(tmp_path: Path, act: Act, outcome: str) -> None:
    async with served(tmp_path, only("/versions/3/", act), models=[mirrored()]) as here:
        for _ in range(12):
            assert (await here.ask()).status == 200
        await until(lambda: outcomes(here) == {outcome: 12})
        [there] = here.pool.replicas
        assert there.breaker.failures == 0
        assert not here.proxy.meter.upstream_errors


async def test_a_body_that_is_too_long_to_keep_is_not_copied(tmp_path: Path) -> None:
    async with served(tmp_path, models=[mirrored()], body_limit_bytes=4 * MOST_BYTES) as here:
        assert (await here.ask(request(body=b"x" * (MOST_BYTES + 1)))).status == 200
        await until(lambda: outcomes(here) == {"too-large": 1})
        assert not copies(here.replica)
        assert here.proxy.shared.mirror.held == 0


async def test_a_request_that_never_becomes_whole_is_not_copied(tmp_path: Path) -> None:
    async with served(tmp_path, models=[mirrored()], request_timeout_seconds=1) as here:
        async with here.caller() as caller:
            await caller.send(request(body=BODY * 10)[:-5])
            await until(lambda: here.proxy.shared.mirror.in_flight)
        await until(lambda: outcomes(here) == {"incomplete": 1})
        assert not copies(here.replica)
        assert here.proxy.shared.mirror.held == 0


async def test_requests_of_a_model_with_sequences_are_not_copied(tmp_path: Path) -> None:
    """A share of a sequence's requests is no sequence."""

    async with served(tmp_path, only("GET", answering(b'{"sequence_batching":{}}')), models=[mirrored()]) as here:
        for _ in range(3):
            body = b'{"parameters":{"sequence_id":7},"inputs":[]}'
            assert (await here.ask(request(body=body))).status == 200
        await until(lambda: sum(outcomes(here).values()) == 3)
        assert outcomes(here)["sequence"] >= 1
        assert not copies(here.replica)


async def test_copies_keep_no_proxy_from_ending(tmp_path: Path) -> None:
    async with served(tmp_path, CANDIDATE_HANGS, models=[mirrored()], drain_seconds=5) as here:
        assert (await here.ask()).status == 200
        await until(lambda: copies(here.replica))
        began = monotonic()
        await here.proxy.stop()
        assert monotonic() - began < 3
        await until(lambda: not here.proxy.shared.mirror.in_flight)
