"""What takes long of its own accord holds nobody up: a scrape of many models, folders of many files, slow readers."""

import asyncio
import http.client
import logging
import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidegate_proxy.access.api_keys import hash_line, new_key

from ..http.house import House, house, request, until
from ..http.upstream import Asked, Upstream, answer, upstream

pytestmark = pytest.mark.anyio
MODELS = 10_000
HELD = 0.25
"""Seconds that a probe may take on a busy machine; a scrape of so many models takes some of them."""
KEYS = 5_000


def get(here: House, path: str) -> tuple[float, bytes]:
    """Ask the admin port, from another thread; return the seconds that it took and the body."""
    begin = time.monotonic()
    asking = http.client.HTTPConnection("127.0.0.1", here.proxy.ports["admin"], timeout=60)
    asking.request("GET", path)
    said = asking.getresponse().read()
    asking.close()
    return time.monotonic() - begin, said


async def test_probes_answer_while_many_models_are_scraped(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for number in range(MODELS):
            count = here.proxy.meter.count("vision", f"model-{number}", "http")
            count.ended(200, 0.003, 10, 20)
        scraping = asyncio.ensure_future(asyncio.to_thread(get, here, "/metrics"))
        probes = []
        while not scraping.done():
            probes.append((await asyncio.to_thread(get, here, "/healthz"))[0])
        _, said = await scraping
        assert len(probes) > 10
        assert sorted(probes)[len(probes) * 9 // 10] < HELD / 4
        assert max(probes) < HELD
        found = {each.name: each for each in text_string_to_metric_families(said.decode())}
        assert len(found["tidegate_proxy_requests"].samples) == MODELS
        assert len(found["tidegate_proxy_request_seconds"].samples) == MODELS * 18


async def test_a_folder_of_many_keys_is_looked_at_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate_proxy.config.LOOK_SECONDS", 3600)  # nobody but the test looks
    async with house(tmp_path) as here:
        for number in range(KEYS):
            (tmp_path / "api-keys" / f"p{number}").write_text("")
        keys = here.proxy.config.watched[2]
        threads = set()
        fingerprint = keys._fingerprint

        def watched() -> object:
            threads.add(threading.current_thread())
            return fingerprint()

        keys._fingerprint = watched  # type: ignore[method-assign]
        await keys.look()
        assert keys.generation == 2
        await keys.look()
        assert keys.generation == 2, "nothing has changed"
        assert threads
        assert threading.main_thread() not in threads
        key = new_key()
        (tmp_path / "api-keys" / "p7").write_text(hash_line(key) + "\n")
        await keys.look()
        assert keys.generation == 3


async def test_sigterm_waits_for_those_who_read_slowly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = 250_000  # read from the replica at once, and more than the system takes

    async def much(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
        await answer(writer, bytes(size))

    caplog.set_level(logging.INFO)
    async with upstream(much) as replica, house(tmp_path, replica, drain_seconds=30) as here:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", here.proxy.ports["http"]))
        slow.sendall(request() * 30)
        await until(lambda: len(replica.asked) > 2)
        await until(lambda: any(each.unsent for each in here.proxy.http.connections))
        ending = asyncio.ensure_future(here.proxy.stop())
        await asyncio.sleep(2)
        assert not ending.done()
        said = await asyncio.to_thread(read_all, slow)
        async with asyncio.timeout(10):
            await ending
        answers = said.count(b"HTTP/1.1 200 OK")
        assert answers > 2
        assert len(said) > answers * size, "none is cut short"


def read_all(caller: socket.socket) -> bytes:
    """Read until the proxy ends the connection."""
    caller.settimeout(20)
    said = b""
    with caller:
        while more := caller.recv(1 << 20):
            said += more
    return said
