import asyncio
import ssl
from collections import Counter
from pathlib import Path
from time import time

import pytest
from tidegate_proxy.access.api_keys import hash_line, new_key
from tidegate_proxy.access.jwks import TRUST_SECONDS

from lab.local_cluster.certificates import LASTS, Authority

from ..http.running_proxy import KEY, Caller, RunningProxy, request, served, until
from ..http.test_http_metrics import scrape, value
from ..http.upstream import answering
from ..rigs.issuer import Issuer
from ..rigs.tables import GROUP
from ..rigs.tables import access_table as trusting

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_secret_in_the_log")]


async def status(here: RunningProxy | Caller, token: str) -> int:
    data = request(key=None, Authorization=f"Bearer {token}")
    if isinstance(here, RunningProxy):
        return (await here.ask(data, 60)).status
    await here.send(data)
    return (await here.reply()).status


async def test_keys_of_an_unreachable_provider_are_trusted_only_if_fetched_before(
    tmp_path: Path, identity_provider: Issuer
) -> None:
    async def trusted() -> float:
        return value(await scrape(here), "issuer_keys_trusted_seconds", issuer=identity_provider.url)

    identity_provider.mode = "down"
    token = identity_provider.token("alice", [GROUP])
    async with served(tmp_path, access=trusting([identity_provider])) as here:
        assert (await status(here, token), await trusted()) == (503, 0)
    identity_provider.mode = "well"
    async with served(tmp_path, access=trusting([identity_provider])) as here:
        assert await status(here, token) == 200
        identity_provider.mode = "down"
        assert await status(here, identity_provider.token("bob", [GROUP])) == 200, "its key is known"
        assert TRUST_SECONDS - 60 < await trusted() <= TRUST_SECONDS


async def test_keys_and_rules_change_under_load_without_a_wrong_answer(here: RunningProxy) -> None:
    other = new_key()
    (here.root / "api-keys" / "ci").write_text(f"{hash_line(KEY)}\n{hash_line(other)}\n")
    [_, rules, keys] = here.proxy.config.watched
    await keys.look()
    stopped = False
    seen: dict[str, Counter[int]] = {KEY: Counter(), other: Counter()}

    async def call(key: str) -> None:
        async with here.caller() as caller:
            while not stopped:
                await caller.send(request(key=key))
                seen[key][(await caller.reply()).status] += 1

    calls = [asyncio.ensure_future(call(key)) for key in (KEY, other) * 3]
    for number in range(5):
        more = f"{hash_line(other)}\n" if number % 2 else "# nothing\n"
        (here.root / "api-keys" / "ci").write_text(f"{hash_line(KEY)}\n{more}")
        await keys.look()
        here.write("access.json", trusting((), 1_000_000 + number).model_dump_json(by_alias=True))
        await rules.look()
        assert not keys.last_error + rules.last_error
        counted = seen[other][200 if number % 2 else 401]
        await until(lambda number=number, counted=counted: seen[other][200 if number % 2 else 401] > counted + 3)
    stopped = True
    await asyncio.gather(*calls)
    assert seen[KEY].keys() == {200}
    assert seen[other].keys() == {200, 401}


async def test_a_certificate_is_taken_over_without_a_dropped_connection(tmp_path: Path) -> None:
    first, second = Authority(), Authority()
    (tmp_path / "tls").mkdir()

    def put(key: bytes, certificate: bytes) -> None:
        (tmp_path / "tls" / "tls.key").write_bytes(key)
        (tmp_path / "tls" / "tls.crt").write_bytes(certificate)

    async def connect(authority: Authority) -> Caller:
        trusted = ssl.create_default_context(cadata=authority.pem.decode())
        return Caller(*await asyncio.open_connection("127.0.0.1", here.proxy.ports["http"], ssl=trusted))

    put(*first.pair("proxy"))
    async with served(tmp_path, answering(seconds=0.2), tls=True) as here:
        certificate = here.proxy.config.watched[-1]
        ends = value(await scrape(here), "certificate_expires_timestamp_seconds")
        assert ends == pytest.approx(time() + LASTS.total_seconds(), abs=60)
        kept = await connect(first)
        await kept.send(request())
        put(*second.pair("proxy"))
        await certificate.look()
        fresh = await connect(second)
        with pytest.raises(ssl.SSLError):
            await connect(first)
        await fresh.send(request())
        assert [(await each.reply()).status for each in (kept, fresh)] == [200, 200]
        for key, chain in (
            (first.pair("proxy")[0], second.pair("proxy")[1]),
            (b"", b""),
            (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n", b"nonsense"),
        ):
            put(key, chain)
            await certificate.look()
            assert certificate.last_error
            for each in (kept, await connect(second)):
                await each.send(request())
                assert (await each.reply()).status == 200
        assert certificate.failures == 3
