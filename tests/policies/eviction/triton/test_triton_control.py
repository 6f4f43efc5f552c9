import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tidegate_eviction.triton.control import (
    LostError,
    ModelIndex,
    RefusedError,
    ServerCallError,
    TritonControl,
    VersionState,
    certified_name,
)

from lab.local_cluster.certificates import Authority

from ..rigs.stand_in import SECRET, StandIn, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(stand_in: StandIn, secret: str = SECRET) -> AsyncIterator[TritonControl]:
    async with asyncio.timeout(20), serving(stand_in):
        control = TritonControl(stand_in.address, secret)
        await control.connect()
        yield control
        await control.close()


async def test_no_response_is_distinguished_from_a_refusal() -> None:
    async with connected(StandIn({"a": 1}, silent={"a"})) as control:
        with pytest.raises(ServerCallError, match=r"RepositoryModelLoad within 0\.1 s"):
            await control.load("a", 0.1)


async def test_another_secret_is_no_lost_connection() -> None:
    async with connected(StandIn({"a": 1}), secret="6" * 64) as control:
        with pytest.raises(RefusedError, match="another control secret"):
            await control.index()


def test_a_call_without_a_connection_is_reported() -> None:
    with pytest.raises(LostError, match="no connection to Triton at nowhere:1"):
        asyncio.run(TritonControl("nowhere:1", SECRET).index())


def state(version: int, name: str, reason: str = "") -> VersionState:
    return VersionState(version, name, reason)


@pytest.mark.parametrize(
    ("versions", "unloaded", "why"),
    [
        ((), True, ""),
        ((state(1, "UNAVAILABLE", "unloaded"),), True, ""),
        ((state(1, "UNAVAILABLE", "unloaded"), state(2, "UNLOADING")), False, ""),
        ((state(1, "READY"),), False, ""),
        ((state(1, "UNAVAILABLE", "no memory"), state(2, "UNAVAILABLE", "unloaded")), True, "no memory"),
    ],
)
def test_a_model_is_unloaded_when_all_its_versions_are(
    versions: tuple[VersionState, ...], unloaded: bool, why: str
) -> None:
    index = ModelIndex({"a": versions})
    assert index.is_unloaded("a") is unloaded
    assert index.why_not("a") == why


@pytest.mark.parametrize(
    ("names", "name"), [(("triton.models.svc", "other"), "triton.models.svc"), (("*.cpu.svc",), "any.cpu.svc")]
)
def test_triton_is_known_by_the_first_name_of_its_certificate(
    tmp_path: Path, names: tuple[str, ...], name: str
) -> None:
    tls = Authority().write(tmp_path / "tls", *names)
    assert certified_name((tls / "tls.crt").read_bytes()) == name
    for wrong in (b"", b"no certificate", (tls / "ca.crt").read_bytes()):
        with pytest.raises(LostError, match="names no host"):
            certified_name(wrong)
