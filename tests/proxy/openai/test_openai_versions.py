import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import routing
from tidegate_proxy.settings import Tunables

from lab.local_plane.proxy import write_tables

from ..http.running_proxy import RunningProxy, request, running_proxy
from ..http.upstream import Act, Received, Upstream, answer, answering, upstream
from ..rigs.tables import CALLER
from .tables import access, model, openai_server, table
from .test_openai_calls import chat, error

pytestmark = pytest.mark.anyio
GREEN = openai_server(green="green.test")
ACCESS = access((CALLER, ["chat", "plain"], ["infer", "inspect"]))


def split(blue: dict[int, int], green: dict[int, int]) -> list[routing.Model]:
    names: Any = {"served_names": ("gpt-4o", "default")}
    return [model("chat", blue, **names), model("chat", green, pool="green", **names)]


def serving(*names: str) -> Act:
    listing = json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode()
    return answering(lambda received: listing if received.line.startswith("GET /v1/models ") else b'{"ok":1}')


def called(replica: Upstream) -> Counter[str]:
    return Counter(json.loads(each.body)["model"] for each in replica.requests if each.line.startswith("POST "))


@pytest.fixture
async def green() -> AsyncIterator[Upstream]:
    async with upstream(serving("chat-v4")) as made:
        yield made


@pytest.fixture
async def here(tmp_path: Path, green: Upstream) -> AsyncIterator[RunningProxy]:
    """A proxy in front of two pools: version 3 of the model `chat` is in one, version 4 in the other."""
    models = [*split({3: 80}, {4: 20}), model("plain", served_names=("small",))]
    async with (
        upstream(serving("chat-v3", "plain")) as blue,
        running_proxy(tmp_path, blue, table=table(models, GREEN), access=ACCESS, hosts={"green.test": green}) as made,
    ):
        made.replica = blue
        yield made


async def test_each_version_is_called_in_its_own_pool_by_share(here: RunningProxy, green: Upstream) -> None:
    async with here.caller() as caller:
        for _ in range(300):
            await caller.send(chat("chat"))
            reply = await caller.reply()
            assert reply.status == 200
    assert called(here.replica).keys() == {"chat-v3"}
    assert called(green).keys() == {"chat-v4"}
    assert 25 < called(green).total() < 105, "20 per cent of them, except for chance"


async def test_a_call_names_the_model_one_of_its_other_names_or_a_version(here: RunningProxy, green: Upstream) -> None:
    for name, version in {"gpt-4o": None, "default": None, "chat-v3": "3", "chat-v4": "4"}.items():
        reply = await here.ask(chat(name))
        assert reply.status == 200
        assert version in (None, reply.headers["tidegate-model-version"])
    requests = here.replica.requests + green.requests
    assert {json.loads(each.body)["model"] for each in requests} <= {"chat-v3", "chat-v4"}
    await here.ask(chat("small"))
    assert json.loads(here.replica.requests[-1].body)["model"] == "plain", "its engine knows no other name"
    assert error(await here.ask(chat("chat-v5"))) == (404, "invalid_request_error", "model_not_found")


async def test_other_names_are_granted_and_counted_as_the_model_is(tmp_path: Path, green: Upstream) -> None:
    allowed = access((CALLER, ["plain"], ["infer"]), burst=2)
    models = [*split({3: 80}, {4: 20}), model("plain", served_names=("org/small:8b",))]
    async with running_proxy(tmp_path, green, table=table(models, GREEN), access=allowed) as here:
        for name in ("chat", "gpt-4o", "chat-v4"):
            assert error(await here.ask(chat(name))) == (404, "invalid_request_error", "model_not_found"), name
        assert [(await here.ask(chat(name))).status for name in ("plain", "org/small:8b", "org/small:8b")] == [
            200,
            200,
            429,
        ]


STEPS: list[list[routing.Model]] = [
    [model("chat", {3: 100})],
    split({3: 100}, {4: 0}),
    split({3: 80}, {4: 20}),
    split({3: 0}, {4: 100}),
    [model("chat", {4: 100}, pool="green")],
]


async def test_no_call_fails_while_one_version_takes_over_from_another(tmp_path: Path, green: Upstream) -> None:
    given: Any = {"table": table(STEPS[0], GREEN), "access": ACCESS, "hosts": {"green.test": green}}
    async with (
        upstream(serving("chat-v3")) as blue,
        running_proxy(tmp_path, blue, tunables=Tunables(), **given) as here,
    ):
        for step in STEPS[1:]:
            before = here.proxy.config.watched[0].generation
            write_tables(here.root, table(step, GREEN), ACCESS)
            while here.proxy.config.watched[0].generation == before:
                reply = await here.ask(chat("chat"))
                assert (reply.status, reply.headers["tidegate-model-version"] in "34") == (200, True)
        for _ in range(20):
            reply = await here.ask(chat("chat"))
            assert (reply.status, reply.headers["tidegate-model-version"]) == (200, "4")


async def test_models_shows_the_pool_of_each_version_and_pools_without_a_replica(
    here: RunningProxy, green: Upstream
) -> None:
    async def entry(name: str) -> Any:
        [found] = (await here.ask(request(f"/models/{name}", method="GET"))).json()["models"]
        return found

    chats, plain = await entry("chat"), await entry("plain")
    assert (chats["state"], chats["versions"], chats["why"]) == ("resident", [3, 4], "")
    assert [(each.get("pool"), each["versions"]) for each in chats["places"]] == [(None, [3]), ("green", [4])]
    assert (plain["state"], plain["versions"]) == ("resident", [])
    assert (await entry("gpt-4o"))["model"] == "chat"
    await green.close()
    await here.look_up()
    chats = await entry("chat")
    assert (chats["state"], chats["versions"]) == ("resident", [3]), "which answers"
    assert [each["state"] for each in chats["places"]][1:] in ([], ["unreachable"], ["unseen"])


async def test_a_replica_that_serves_other_models_or_none_is_shown_with_the_reason(tmp_path: Path) -> None:
    async def act(made: Upstream, writer: Any, _: Received) -> None:
        await answer(writer, b"<html>" if made.index else b'{"data":[{"id":"chat-v2"}]}')

    async with upstream(act) as blue, running_proxy(tmp_path, blue, table=table(STEPS[0]), access=ACCESS) as here:
        for index, state, why in (
            (0, "unknown", "does not serve chat-v3: it serves chat-v2"),
            (1, "unseen", "not a list of"),
        ):
            blue.index = index
            [found] = (await here.ask(request("/models/chat", method="GET"))).json()["models"]
            assert found["state"] == state
            assert why in found["why"]


BAD = {
    "model chat is listed twice on server llm": [model("chat"), model("chat", {4: 100}, pool="green")],
    "model chat is in the pool main twice": [model("chat", {3: 80}), model("chat", {4: 20})],
    "the shares of model chat's versions must sum to 100, but sum to 90": split({3: 80}, {4: 10}),
    "server llm has two models with the name chat-v3": [model("chat", {3: 100}), model("chat-v3")],
    "server llm has two models with the name gpt": [model("a", served_names=("gpt",)), model("gpt")],
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
async def test_a_table_whose_parts_do_not_fit_is_refused_and_the_last_one_stays(
    tmp_path: Path, green: Upstream, why: str
) -> None:
    async with running_proxy(tmp_path, green, table=table(STEPS[0], GREEN), access=ACCESS) as here:
        text = table([], GREEN).model_dump(mode="json", by_alias=True)
        text["models"] = [each.model_dump(mode="json", by_alias=True) for each in BAD[why]]
        here.write("routing.json", json.dumps(text))
        await here.proxy.config.watched[0].look()
        assert here.proxy.config.watched[0].last_error == why
        assert (await here.ask(chat("chat"))).status == 200
