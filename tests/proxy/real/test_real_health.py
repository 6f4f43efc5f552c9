import asyncio
import http.client
import json
import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tidegate_contracts.proxy_process import SERVER_READY_PATH

from lab.local_plane.repository import Model
from lab.local_plane.triton import Triton, triton

from ..http.running_proxy import RIG, RunningProxy, routing_table, running_proxy, until
from ..rigs.pytest_rigs import not_run
from ..rigs.repository import SOURCES, write

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]
ECHO = Model("echo", SOURCES / "echo.py", [("INPUT", "TYPE_FP32", "-1")], [("OUTPUT", "TYPE_FP32", "-1")])
POLLING = ("--model-control-mode=poll", "--repository-poll-secs=1")
THREADS = 8  # Triton's HTTP threads.
NUMBERS = 3 * 2**20
KNOWN_SECONDS = 3.0


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write(tmp_path / "models", [ECHO])


@pytest.fixture
def polling(repository: Path, tmp_path: Path) -> Iterator[Triton]:
    with not_run("A REAL TRITON"), triton(tmp_path / "triton", repository, options=POLLING) as server:
        yield server


def send(server: Triton, body: bytes) -> int:
    calling = http.client.HTTPConnection(server.http, timeout=120)
    calling.request("POST", "/v2/models/echo/infer", body)
    status = calling.getresponse().status
    calling.close()
    return status


async def states(here: RunningProxy, found: set[tuple[str, int]]) -> None:
    while True:
        [replica] = here.pool.replicas
        found.add((replica.breaker.state(monotonic()), (await here.admin(f"{SERVER_READY_PATH}/vision"))[0]))
        await asyncio.sleep(0.02)


async def test_loads_long_bodies_on_all_threads_and_index_queries_open_no_breaker_but_a_stop_does(
    polling: Triton, repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.pools")
    tensor = {"name": "INPUT", "datatype": "FP32", "shape": [NUMBERS], "data": [1.5] * NUMBERS}
    output = {"name": "OUTPUT", "parameters": {"binary_data": True}}
    body = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    found = set[tuple[str, int]]()
    table = routing_table(["echo"], grpc_port=polling.grpc_port)
    often = replace(RIG, index_seconds=0.1, index_rests=0.0)
    async with running_proxy(tmp_path / "proxy", polling.http_port, table=table, tunables=often) as here:
        [watch] = here.pool.watches.values()
        await until(lambda: "echo" in watch.loaded)
        looking = asyncio.create_task(states(here, found))
        calls = [asyncio.to_thread(send, polling, body) for _ in range(3 * THREADS)]
        write(repository, [replace(ECHO, name=f"late_{number}") for number in range(4)])
        assert set(await asyncio.gather(*calls)) == {200}
        await until(lambda: len(watch.loaded) == 5, 60)
        looking.cancel()
        assert found == {("closed", 200)}
        assert not caplog.messages
        [replica] = here.pool.replicas
        polling.process.popen.send_signal(signal.SIGSTOP)
        try:
            await until(replica.breaker.is_unresponsive, KNOWN_SECONDS)
        finally:
            polling.process.popen.send_signal(signal.SIGCONT)
        await until(lambda: not replica.breaker.is_unresponsive(), KNOWN_SECONDS)
