import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop
from tidegate_proxy.settings import Tunables
from tidegate_service.json_lines import JsonLines

from .http.running_proxy import RIG, Caller, RunningProxy, served
from .rigs.pytest_rigs import exposed, front, identity_provider, real_triton

__all__ = ["anyio_backend", "exposed", "front", "identity_provider", "real_triton"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
def _on_the_proxys_loop(request: pytest.FixtureRequest) -> None:
    """A coroutine test runs on the loop that it selects, whatever ran before in this process."""
    if request.node.get_closest_marker("anyio") and request.getfixturevalue("anyio_backend") != "asyncio":
        loop = request.getfixturevalue("_loop_in_use")
        assert isinstance(loop, uvloop.Loop), loop


@pytest.fixture
async def _loop_in_use() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture
def no_secret_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that the log has no text that begins like a token or a key, and no tensor."""
    caplog.set_level(logging.DEBUG)
    yield
    log = "\n".join(map(JsonLines().format, caplog.get_records("call")))
    assert log
    for secret in ("eyJ", "tgk_", "NOBODY-LOGS"):
        where = log.find(secret)
        assert where < 0, log[max(0, where - 300) : where + 100]


@pytest.fixture
def tunables() -> Tunables:
    """The tunables of `here`, which a module or a parameter can replace."""
    return RIG


@pytest.fixture
async def here(tmp_path: Path, tunables: Tunables) -> AsyncIterator[RunningProxy]:
    async with served(tmp_path, tunables=tunables) as made:
        yield made


@pytest.fixture
async def caller(here: RunningProxy) -> AsyncIterator[Caller]:
    async with here.caller() as made:
        yield made
