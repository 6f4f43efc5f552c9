import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tidegate_contracts import routing

from lab.local_plane.proxy import write_tables

from ..http.running_proxy import MODEL, RIG, RunningProxy, model, routing_table, running_proxy, served
from ..http.upstream import Act, answering, hang, only, replying, response, upstream

pytestmark = pytest.mark.anyio


async def take_over(here: RunningProxy, table: routing.RoutingTable) -> None:
    write_tables(here.root, table)
    await here.proxy.config.watched[0].look()


async def test_an_unchanged_model_keeps_its_cached_facts(tmp_path: Path) -> None:
    aliased = [model(name, alias="stable") for name in (MODEL, "model-0")]
    config = only("GET", answering(b'{"parameters":{"tidegate.alias.stable":{"string_value":"3"}}}'))
    async with served(tmp_path, config, models=aliased) as here:
        assert (await here.ask()).headers["tidegate-model-version"] == "3"
        [route] = here.proxy.config.routes.find("vision", MODEL)
        here.replica.act = only("GET", hang)  # no query can succeed
        await take_over(here, routing_table(aliased[:1]))
        assert here.proxy.config.routes.find("vision", "model-0") == ()
        assert here.proxy.config.routes.find("vision", MODEL) == (route,)
        assert (await here.ask(seconds=2)).headers["tidegate-model-version"] == "3"


async def test_the_check_for_sequences_is_repeated_in_the_background(tmp_path: Path) -> None:
    config = only("GET", answering(b"{}"))
    async with upstream(config) as one, upstream(config) as two, running_proxy(tmp_path, one, two) as here:
        assert (await here.ask()).status == 200
        [route] = here.proxy.config.routes.find("vision", MODEL)
        assert route.sequences.known is False
        one.act = two.act = only("GET", answering(b'{"sequence_batching":{}}', seconds=0.5))
        await take_over(here, routing_table((MODEL, "model-0")))
        assert (await here.ask(seconds=2)).status == 200
        assert route.sequences.known is False
        async with asyncio.timeout(10):
            while not route.sequences.known:  # it is not repeated within a second
                assert (await here.ask(seconds=2)).status == 200


async def test_the_check_for_sequences_is_repeated_until_one_succeeds_that_began_after_the_last_change(
    tmp_path: Path,
) -> None:
    go_on, config, often = asyncio.Event(), answering(b"{}"), replace(RIG, retry_seconds=0.1)
    busy, late = replying(lambda _: response(status=503)), answering(b"{}", go_on=go_on)
    async with upstream() as one, upstream() as two, running_proxy(tmp_path, one, two, tunables=often) as here:

        async def ask_until_checked(act: Act) -> None:
            one.act = two.act = only("GET", act)
            before = checks()
            async with asyncio.timeout(5):
                while checks() == before:
                    assert (await here.ask(seconds=2)).status == 200

        def checks() -> int:
            return sum(each.line.startswith("GET") for replica in (one, two) for each in replica.requests)

        await ask_until_checked(config)
        await take_over(here, routing_table((MODEL, "model-0")))
        await ask_until_checked(busy)
        await ask_until_checked(late)
        await take_over(here, routing_table())
        assert (await here.ask(seconds=2)).status == 200
        go_on.set()
        await ask_until_checked(config)
