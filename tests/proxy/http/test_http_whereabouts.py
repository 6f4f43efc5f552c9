from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tidegate_contracts.whereabouts import VisibleModel, Whereabouts

from ..rigs.tables import access_table
from . import running_proxy
from .running_proxy import MODEL, RIG, RunningProxy, request

pytestmark = pytest.mark.anyio
served = partial(running_proxy.served, tunables=replace(RIG, index_fresh_seconds=0.0, index_rests=0.0))
WHY = "unable to find backend library for backend 'onnxruntime'."
INDEX = [
    {"name": MODEL, "version": "1", "state": "READY"},
    {"name": MODEL, "version": "3", "state": "READY"},
    {"name": "broken", "version": "1", "state": "UNAVAILABLE", "reason": WHY},
    {"name": "coming", "version": "1", "state": "LOADING"},
]


async def listed(here: RunningProxy, path: str = "/models") -> dict[str, VisibleModel]:
    reply = await here.ask(request(path, method="GET"))
    assert reply.headers["cache-control"] == "no-store", reply.body
    return {each.model: each for each in Whereabouts.model_validate_json(reply.body).models}


async def test_models_of_a_preload_server_are_listed_as_in_its_index(tmp_path: Path) -> None:
    async with served(tmp_path, models=(MODEL, "broken", "coming", "gone")) as here:
        here.replica.index = INDEX
        found = await listed(here)
        assert {name: each.state for name, each in found.items()} == {
            MODEL: "resident", "broken": "failed", "coming": "loading", "gone": "unknown",
        }  # fmt: skip
        assert (found[MODEL].versions, found[MODEL].since, found[MODEL].why) == ((1, 3), None, "")
        assert (found["broken"].server, found["broken"].pool, found["broken"].loading) == ("vision", "main", "preload")
        assert found["broken"].why == WHY
        assert found["broken"].since is not None
        [place] = found["broken"].places
        assert [(each.version, each.why) for each in place.failures] == [(1, WHY)]
        assert "no version of it is in memory" in found["gone"].why
        here.replica.index = [each | {"state": "READY"} for each in INDEX]
        later = await listed(here)
        assert later["coming"].state == later["broken"].state == "resident"
        assert later["coming"].since is not None
        assert later[MODEL].since is None, "it was already loaded at the first query, so the time is unknown"


async def test_one_model_is_reported_as_in_the_list(here: RunningProxy) -> None:
    here.replica.index = INDEX
    everything = await listed(here)
    for path in ("/models/", f"/models/{MODEL}", f"/servers/vision/models/{MODEL}", "/servers/vision/models"):
        assert await listed(here, path) == everything


async def test_only_models_that_the_caller_may_inspect_are_shown(tmp_path: Path) -> None:
    async with served(tmp_path, access=access_table(caller="somebody-else")) as here:
        assert await listed(here) == {}
        for path in (f"/models/{MODEL}", "/servers/vision/models"):
            assert (await here.ask(request(path, method="GET"))).problem == "unknown"
    async with served(tmp_path / "other") as here:
        for path in ("/models", f"/models/{MODEL}", "/servers/vision/models"):
            assert (await here.ask(request(path, method="GET", key=None))).problem == "unauthenticated"
        for path in ("/models/nothing", f"/servers/absent/models/{MODEL}", "/servers/absent/models"):
            assert (await here.ask(request(path, method="GET"))).problem == "unknown"


@pytest.mark.parametrize("index", [{}, [1], [{"version": "1"}]])
async def test_a_server_that_answers_nonsense_hides_no_model(here: RunningProxy, index: object) -> None:
    here.replica.index = index
    [only] = (await listed(here)).values()
    assert (only.model, only.state) == (MODEL, "unseen")
    assert ": its index cannot be read" in only.why
