import asyncio
import gc
import http.client
import logging
import socket
import time
from pathlib import Path

import pytest
from tidegate_proxy.routes import Route

from ..http.running_proxy import MODEL, RunningProxy, request, routing_table, running_proxy, served, until
from ..http.upstream import answering

pytestmark = pytest.mark.anyio
MODELS = 10_000
HELD = 0.25  # Seconds of CPU time for a probe. A scrape of so many models takes some of them.


def get(here: RunningProxy, path: str) -> tuple[float, bytes]:
    """Query the admin port from another thread. Return the duration and the body. The duration is CPU time of this
    process, which serves the port too, because other processes share the clock's time."""
    begin = time.process_time()
    asking = http.client.HTTPConnection("127.0.0.1", here.proxy.ports["admin"], timeout=60)
    asking.request("GET", path)
    body = asking.getresponse().read()
    asking.close()
    return time.process_time() - begin, body


async def test_probes_answer_while_many_models_are_scraped(tmp_path: Path) -> None:
    async with running_proxy(tmp_path) as here:
        for number in range(MODELS):
            here.proxy.meter.calls["vision", f"model-{number}", "http"].ended(200, 0.003, 10, 20)
        scraping = asyncio.ensure_future(asyncio.to_thread(get, here, "/metrics"))
        probes = []
        while not scraping.done():
            probes.append((await asyncio.to_thread(get, here, "/healthz"))[0])
        _, body = await scraping
        assert len(probes) > 10
        assert sorted(probes)[len(probes) * 9 // 10] < HELD / 4
        assert max(probes) < HELD
        assert body.count(b"\ntidegate_proxy_requests_total{") == MODELS
        assert body.count(b"\ntidegate_proxy_request_seconds_") == MODELS * 18


async def test_sigterm_waits_for_slow_readers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = 250_000  # read from the replica at once, and more than the system buffers
    caplog.set_level(logging.INFO)
    async with served(tmp_path, answering(bytes(size)), drain_seconds=30) as here:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", here.proxy.ports["http"]))
        slow.sendall(request() * 30)
        await until(lambda: len(here.replica.requests) > 2)
        await until(lambda: any(each.unsent for each in here.proxy.http.connections))
        ending = asyncio.ensure_future(here.proxy.stop())
        await until(lambda: not any(each.is_serving() for each in here.proxy._accepting))
        assert not ending.done()
        body = await asyncio.to_thread(read_all, slow)
        async with asyncio.timeout(10):
            await ending
        answers = body.count(b"HTTP/1.1 200 OK")
        assert answers > 2
        assert len(body) > answers * size, "none is cut short"


def read_all(caller: socket.socket) -> bytes:
    caller.settimeout(20)
    body = b""
    with caller:
        while more := caller.recv(1 << 20):
            body += more
    return body


LONGEST_HELD = 0.15
"""Seconds of CPU time for which the loop may be blocked. All of the work takes many times as long."""


def table(generation: int) -> str:
    names = (f"model-{number}-{generation}" for number in range(1, MODELS))
    return routing_table([MODEL, *names]).model_dump_json(by_alias=True)


async def longest_held(work: "asyncio.Future[None]") -> tuple[float, float]:
    """Return the longest time for which the loop was blocked until work was done, and the total time."""
    longest, begin = 0.0, time.thread_time()
    before = begin
    while not work.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await work
    return longest, time.thread_time() - begin


async def take_over(here: RunningProxy, text: str) -> tuple[float, float]:
    here.write("routing.json", text)
    return await longest_held(asyncio.ensure_future(here.proxy.config.watched[0].look()))


def routes_there() -> int:
    return sum(1 for each in gc.get_objects() if type(each) is Route)


async def test_a_new_table_of_ten_thousand_models_delays_no_call(here: RunningProxy) -> None:
    texts, others = [table(generation) for generation in range(3)], routes_there()  # of other tests
    stopped, statuses = False, []

    async def call() -> None:
        async with here.caller() as caller:
            while not stopped:
                await caller.send(request())
                statuses.append((await caller.reply()).status)

    await take_over(here, texts[0])
    calls = [asyncio.ensure_future(call()) for _ in range(4)]
    await until(lambda: len(statuses) > 20)
    for text in texts[1:]:
        before = len(statuses)
        longest, whole = await take_over(here, text)
        assert longest < LONGEST_HELD, f"{longest:.3f} s of {whole:.3f} s"
        assert len(statuses) > before + 20, "requests went on meanwhile"
    stopped = True
    await asyncio.gather(*calls)
    assert set(statuses) == {200}
    assert len(here.proxy.config.routes.of_server("vision")) == MODELS
    here.proxy.config.authorizer.sweep()
    assert routes_there() - others <= MODELS + 10, "the tables before it are forgotten"
