import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts import eviction_process, lease
from tidegate_eviction.serving import callers as callers_module
from tidegate_eviction.serving.callers import Callers, ClusterKeys, NotLetInError
from tidegate_service.tokens import verified_claims

from lab.local_plane import credentials
from lab.local_plane.credentials import NAMESPACE, SECONDS, lease_token, write_cluster

from ..rigs.running_policy import MIB
from ..rigs.stand_in import StandIn
from .test_serving_lease_api import over_the_wire

pytestmark = pytest.mark.anyio

SUBJECT = f"system:serviceaccount:{NAMESPACE}:inference-proxy"
POD = {"namespace": NAMESPACE, "pod": {"name": "p", "uid": "p"}}


def signed(key: Any = None, algorithm: str = "ES256", kid: str | None = "lab") -> str:
    """Return a token with valid claims, signed by another key."""
    claims = jwt.decode(lease_token("p"), options={"verify_signature": False})
    key = generate_private_key(SECP256R1()) if key is None else key
    return jwt.encode(claims, key, algorithm, {} if kid is None else {"kid": kid})


def tampered() -> str:
    head, _, signature = lease_token("q").split(".")
    return ".".join((head, lease_token("p").split(".")[1], signature))


PUBLIC = "the public key, which anyone can read, as a secret"
WRONG: dict[str, Callable[[], str | None]] = {
    "nothing": lambda: None,
    "no token": lambda: "Bearer",
    "another scheme": lambda: f"Basic {lease_token('p')}",
    "made up": lambda: "Bearer made-up",
    "too long": lambda: "Bearer " + "a" * 20_000,
    "not of ASCII": lambda: "Bearer t\u00f6ken",
    "forged": lambda: f"Bearer {signed()}",
    "an unknown key": lambda: f"Bearer {signed(kid='other')}",
    "no key named": lambda: f"Bearer {signed(kid=None)}",
    "no JSON": lambda: "Bearer a.b.c",
    "tampered": lambda: f"Bearer {tampered()}",
    "unsigned": lambda: f"Bearer {signed('', 'none')}",
    "signed with the public key": lambda: f"Bearer {signed(PUBLIC, 'HS256')}",
    "ended": lambda: f"Bearer {lease_token('p', exp=int(time.time()) - 1)}",
    "without an end": lambda: f"Bearer {lease_token('p', exp=None)}",
    "not valid yet": lambda: f"Bearer {lease_token('p', nbf=int(time.time()) + 600)}",
    "for the cluster's API": lambda: f"Bearer {lease_token('p', aud=['https://kubernetes.default.svc'])}",
    "for no audience": lambda: f"Bearer {lease_token('p', aud=[])}",
    "of another namespace": lambda: f"Bearer {lease_token('p', sub=SUBJECT.replace(NAMESPACE, 'other'))}",
    "of a server's account": lambda: f"Bearer {lease_token('p', sub=SUBJECT.replace('inference-proxy', 'triton-a'))}",
    "of no pod": lambda: f"Bearer {lease_token('p', **{'kubernetes.io': {'namespace': NAMESPACE}})}",
    "of a pod without a name": lambda: f"Bearer {lease_token('p', **{'kubernetes.io': POD | {'pod': {'name': 5}}})}",
}
MESSAGES: dict[str, tuple[str, str, Any]] = {
    "acquire": ("POST", lease.ACQUIRE_PATH, {"holder": "p.1", "model": "b"}),
    "renew": ("POST", lease.RENEW_PATH, {"holder": "p.1", "models": {}}),
    "release": ("POST", lease.RELEASE_PATH, {"holder": "p.1", "models": ["a"], "serials": {"a": 10**9}}),
    "list": ("GET", lease.MODELS_PATH, None),
}


@pytest.mark.parametrize("message", MESSAGES)
async def test_without_a_right_token_no_message_is_taken_and_nothing_changes(
    tmp_path: Path, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    method, path, body = MESSAGES[message]
    async with over_the_wire(tmp_path, StandIn({"a": MIB, "b": MIB}), lease_seconds=60) as (policy, wire):
        _, _, granted = await wire.acquire("a")
        if body and message == "release":
            body = body | {"incarnation": granted["incarnation"]}
        for name, credential in WRONG.items():
            value = credential()
            headers = {"authorization": value or "", "content-type": "application/json"}
            async with wire.http.request(method, wire.root + path, data=json.dumps(body), headers=headers) as answer:
                text = await answer.text()
                assert (answer.status, "why" in json.loads(text)) == (401, True), (name, text)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert not value or len(value) < 20 or value[7:] not in text
        assert policy.service.residency.leases == 1
        assert policy.counted("refused_messages_total") == len(WRONG)
        lines = [each.__dict__["data"] for each in caplog.records if "was refused" in each.message]
        assert 1 <= len(lines) < len(WRONG), "a flood of strangers must not become a flood of lines"
        assert {each["event"] for each in lines} == {"lease-refused"}
        assert "b" not in policy.triton.did("load")
        assert policy.triton.did("unload") == []


@pytest.mark.parametrize("message", ["acquire", "renew", "release"])
@pytest.mark.parametrize("holder", ["p.2x", "pp.1", "p", "q.1", "p.1.1", ".1", "1"])
async def test_a_proxy_acts_only_for_the_holders_of_its_pod(tmp_path: Path, message: str, holder: str) -> None:
    _, path, body = MESSAGES[message]
    async with over_the_wire(tmp_path, StandIn({"a": MIB, "b": MIB}), lease_seconds=60) as (policy, wire):
        await wire.acquire("a")
        wire.http.headers["authorization"] = f"Bearer {lease_token('q' if holder == 'p.2x' else 'p')}"
        assert (await wire.post(path, body | {"holder": holder}))[0] == 403
        assert (policy.service.residency.leases, "b" in policy.triton.did("load")) == (1, False)


@given(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,80}[a-z0-9])?", fullmatch=True), st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
)
def test_every_pod_has_holders_and_none_of_anothers(pod: str, suffix: str) -> None:
    name = lease.holder_name(pod, suffix)
    assert lease.is_holder_of(pod, name)
    assert len(name) <= 64
    assert not lease.is_holder_of(f"{pod[:40]}x", name) or pod[:48] == f"{pod[:40]}x"


async def test_a_credential_is_judged_before_the_body_is_read(tmp_path: Path) -> None:
    async with over_the_wire(tmp_path, StandIn({"a": MIB})) as (_, wire):
        for body in (b"", b"no JSON", b"x" * (9 << 20)):
            async with wire.http.post(wire.root + lease.RENEW_PATH, data=body, headers={"authorization": ""}) as answer:
                assert answer.status == 401


# Keys


class Fetches:
    """A stand-in for the API server: the result of each read of the keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.keys = (write_cluster(folder) / eviction_process.CLUSTER_KEYS_FILE).read_bytes()
        self.answer: bytes | Exception = self.keys
        self.number = 0
        monkeypatch.setattr(ClusterKeys, "_fetch", lambda _: self())

    def __call__(self) -> bytes:
        self.number += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


AWAY = OSError("timed out")
NO_KEYS = [AWAY, b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "RSA"}]}', b"[" * 100_000, b"\xff"]


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fetches:
    (tmp_path / "state").mkdir()
    return Fetches(monkeypatch, tmp_path / "cluster")


async def started(root: Path, **more: Any) -> Callers:
    made = Callers(root / "cluster", root / "state", **more)
    made.keys.start()
    await made.keys.tried()
    return made


async def test_a_restart_with_the_api_server_away_knows_the_keys_of_before(tmp_path: Path, fetches: Fetches) -> None:
    await started(tmp_path)
    fetches.answer = AWAY
    again = await started(tmp_path)
    assert (await again.identify(f"Bearer {lease_token('p')}")) == "p"
    with pytest.raises(NotLetInError):
        await again.identify(f"Bearer {signed()}")


async def test_only_a_message_waits_for_the_first_reading_of_the_keys_and_it_is_verified(
    tmp_path: Path, fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that waits would delay the server by 5 seconds without an API server."""
    go_on = threading.Event()
    monkeypatch.setattr(ClusterKeys, "_fetch", lambda _: fetches() if go_on.wait(10) else b"")
    made = Callers(tmp_path / "cluster", tmp_path / "state")
    made.keys.start()
    asking = [asyncio.ensure_future(made.identify(each)) for each in (f"Bearer {lease_token('p')}", None)]
    assert not (await asyncio.wait(asking, timeout=0.2))[0]
    go_on.set()
    assert await asking[0] == "p"
    with pytest.raises(NotLetInError):
        await asking[1]


@pytest.mark.parametrize(
    "kept", [b"", b"{", b"5", b"[]", b"{}", b'{"asOf": 1}', b'{"asOf": "x", "keys": {"keys": []}}', b"[" * 100_000,
             b'{"asOf": 1, "keys": []}', b'{"asOf": 1, "keys": {"keys": [{"kty": "RSA"}]}}', b"\xff"]
)  # fmt: skip
async def test_invalid_kept_keys_are_read_again(tmp_path: Path, fetches: Fetches, kept: bytes) -> None:
    (tmp_path / "state" / "keys.json").write_bytes(kept)
    made = await started(tmp_path)
    assert fetches.number == 1
    assert await made.identify(f"Bearer {lease_token('p')}") == "p"


async def test_while_the_api_server_is_away_tokens_do_not_end_and_new_ones_are_taken(
    tmp_path: Path, fetches: Fetches
) -> None:
    """The kubelet gets no new tokens then, and inference must continue."""
    made = await started(tmp_path)
    token = f"Bearer {lease_token('p')}"
    clock = [time.time()]
    made.keys.wall = lambda: clock[0]
    await made.keys.refresh()
    fetches.answer = AWAY
    await made.keys.refresh()
    clock[0] += 2 * SECONDS
    assert await made.identify(token) == "p"
    later = lease_token("p", iat=int(clock[0]), nbf=int(clock[0]), exp=int(clock[0]) + 60)
    assert await made.identify(f"Bearer {later}") == "p"
    fetches.answer = fetches.keys
    await made.keys.refresh()
    with pytest.raises(NotLetInError, match="expired"):
        await made.identify(token)


@pytest.mark.parametrize("answer", NO_KEYS)
@pytest.mark.parametrize("is_strict", [True, False])
async def test_before_any_keys_were_read_only_the_network_policies_protect_or_nothing_is_served(
    tmp_path: Path, fetches: Fetches, monkeypatch: pytest.MonkeyPatch, answer: Any, is_strict: bool
) -> None:
    if is_strict:
        monkeypatch.setenv(eviction_process.KEYS_REQUIRED, "true")
    fetches.answer = answer
    made = await started(tmp_path)
    for credential in (None, f"Bearer {lease_token('p')}"):
        if is_strict:
            with pytest.raises(NotLetInError) as refused:
                await made.identify(credential)
            assert refused.value.status == 503
        else:
            assert (await made.identify(credential)) is None
    fetches.answer = fetches.keys
    await made.keys.refresh()
    fetches.answer = AWAY
    await made.keys.refresh()
    assert await made.identify(f"Bearer {lease_token('p')}") == "p"
    with pytest.raises(NotLetInError):
        await made.identify(None)


async def test_a_new_key_is_looked_up_and_made_up_ones_are_not_looked_up_each_time(
    tmp_path: Path, fetches: Fetches
) -> None:
    made = await started(tmp_path)
    before = fetches.number
    for number in range(50):
        with pytest.raises(NotLetInError):
            await made.identify(f"Bearer {signed(kid=f'made-up-{number}')}")
    assert fetches.number == before, "they were read a moment ago"
    made = await started(tmp_path, pause_seconds=0.0)
    fetches.answer = AWAY
    await made.keys.refresh()
    fetches.answer = fetches.keys.replace(b'"lab"', b'"new"')
    token = signed(credentials._key(), kid="new")
    assert await made.identify(f"Bearer {token}") == "p"
    with pytest.raises(NotLetInError):
        await made.identify(f"Bearer {lease_token('p')}")


async def test_a_token_is_verified_once(tmp_path: Path, fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await started(tmp_path, most_remembered=2)
    seen = []
    verify = verified_claims

    def counting(token: str, *more: Any, **named: Any) -> dict[str, Any]:
        seen.append(token)
        return verify(token, *more, **named)

    monkeypatch.setattr(callers_module, "verified_claims", counting)
    token = lease_token("p")
    for _ in range(100):
        assert await made.identify(f"Bearer {token}") == "p"
    assert len(seen) == 1
    for number in range(10):
        await made.identify(f"Bearer {lease_token(f'q-{number}')}")
    assert len(made._remembered) <= 2
    assert fetches.number == 1


@pytest.mark.usefixtures("fetches")
async def test_no_credential_is_logged_or_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = await started(tmp_path)
    token = lease_token("p")
    await made.identify(f"Bearer {token}")
    with pytest.raises(NotLetInError) as refused:
        await made.identify(f"Bearer {signed()}")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").iterdir()).decode()
    for text in (caplog.text, str(refused.value), kept):
        assert token.rpartition(".")[2] not in text


def test_a_pod_without_its_volumes_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError, match="namespace"):
        Callers(tmp_path / "cluster", tmp_path / "state")
