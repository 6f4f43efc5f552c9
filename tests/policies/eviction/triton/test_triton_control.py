"""Model control over gRPC: what Triton says, in words that tell a refusal from a silence and from its end."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tidegate_eviction.triton.control import (
    LostError,
    ModelIndex,
    RefusedError,
    ServerCallError,
    TritonControl,
    VersionState,
    certified_name,
)

from ..rigs.stand_in import SECRET, StandIn, serving, until


def with_control(stand_in: StandIn, work: Callable[[TritonControl], Awaitable[None]], secret: str = SECRET) -> None:
    async def run() -> None:
        async with asyncio.timeout(20), serving(stand_in):
            control = TritonControl(stand_in.address, secret)
            await control.connect()
            try:
                await work(control)
            finally:
                await control.close()

    asyncio.run(run())


def test_a_silence_is_told_apart_from_a_refusal() -> None:
    async def work(control: TritonControl) -> None:
        with pytest.raises(ServerCallError, match=r"RepositoryModelLoad within 0\.1 s"):
            await control.load("a", 0.1)

    with_control(StandIn({"a": 1}, silent={"a"}), work)


def test_another_secret_is_no_lost_connection() -> None:
    async def work(control: TritonControl) -> None:
        with pytest.raises(RefusedError, match="another control secret"):
            await control.index()

    with_control(StandIn({"a": 1}), work, secret="6" * 64)


def test_the_end_of_triton_shows_at_once() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        stand_in = StandIn({"a": 1}, load_seconds=60)
        control = TritonControl("127.0.0.1:1", SECRET)
        async with asyncio.timeout(20):
            async with serving(stand_in):
                control.address = stand_in.address
                await control.connect()
                lost = asyncio.create_task(control.lost())
                load = asyncio.create_task(control.load("a", None))
                await until(lambda: stand_in.did("load"))
                assert not lost.done()
                begun = loop.time()
            await lost
            with pytest.raises(LostError):
                await load
            await control.close()
        return loop.time() - begun

    assert asyncio.run(run()) < 5, "and not after the minute that the load takes"


def test_a_call_without_a_connection_says_so() -> None:
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


def certificate(*names: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "triton")])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    now = datetime.now(UTC)
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_triton_is_known_by_the_first_name_of_its_certificate() -> None:
    assert certified_name(certificate("triton.models.svc", "other")) == "triton.models.svc"
    assert certified_name(certificate("*.triton-cpu.models.svc")) == "any.triton-cpu.models.svc"


@pytest.mark.parametrize("wrong", [b"", b"no certificate", certificate()])
def test_a_certificate_without_a_name_is_refused(wrong: bytes) -> None:
    with pytest.raises(LostError, match="names no host"):
        certified_name(wrong)
