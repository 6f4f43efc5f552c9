import asyncio
from pathlib import Path

import pytest
from tidegate_contracts import routing

from lab.local_plane.proxy import write_tables

from ..http.running_proxy import MODEL, RunningProxy, model, routing_table, running_proxy, served
from ..http.upstream import answering, hang, only, upstream

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
