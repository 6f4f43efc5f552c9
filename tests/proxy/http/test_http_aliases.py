"""A model's alias decides on its version as the model's own configuration says, and nothing else does."""

import asyncio
import json
from pathlib import Path

import pytest
from tidegate_contracts import routing
from tidegate_proxy import routes

from .house import MODEL, PATH, House, Reply, request, served
from .upstream import Asked, Upstream, answer

pytestmark = pytest.mark.anyio

ALIASED = (routing.Model(name=MODEL, server="vision", pool="main", alias="champion"),)


def saying(**versions: str) -> dict[str, object]:
    return {f"tidegate.alias.{alias}": {"string_value": version} for alias, version in versions.items()}


class Configured:
    """What a replica does: it tells the model's configuration, and which version was called."""

    def __init__(self, **versions: str) -> None:
        self.parameters: object = saying(**versions)
        self.status = 200
        self.asked = 0

    async def __call__(self, _: Upstream, writer: asyncio.StreamWriter, asked: Asked) -> None:
        path = asked.line.split()[1]
        if not path.endswith("/config"):
            await answer(writer, path.encode())
            return
        self.asked += 1
        body = json.dumps({"name": MODEL, "parameters": self.parameters, "max_batch_size": 8}).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (self.status, len(body), body))


def versions(*replies: Reply) -> set[tuple[int, str | None]]:
    return {(each.status, each.headers.get("tidegate-model-version")) for each in replies}


async def several(here: House, number: int = 20) -> list[Reply]:
    return list(await asyncio.gather(*(here.ask() for _ in range(number))))


async def test_requests_get_the_version_that_the_alias_stands_for_and_it_is_asked_once(tmp_path: Path) -> None:
    act = Configured(champion="3", challenger="4")
    async with served(tmp_path, act, models=ALIASED) as here:
        replies = await several(here)
        assert versions(*replies) == {(200, "3")}
        assert {each.body.decode() for each in replies} == {f"/v2/models/{MODEL}/versions/3/infer"}
        assert versions(await here.ask(request(PATH.replace("/infer", "/versions/9/infer")))) == {(200, "9")}
        assert act.asked == 1


@pytest.mark.parametrize("said", [{"other": "3"}, {"champion": "newest"}, {"champion": "0"}, {"champion": ""}])
async def test_without_a_version_no_other_answers_instead(tmp_path: Path, said: dict[str, str]) -> None:
    act = Configured(**said)
    async with served(tmp_path, act, models=ALIASED) as here:
        reply = await here.ask()
        assert (reply.status, reply.problem) == (503, "busy")
        assert "tidegate.alias.champion of the model's configuration names no version" in reply.json()["detail"]
        assert reply.headers["retry-after"] == "1"
        assert all("/config" in each.line for each in here.replica.asked)


async def test_where_the_configuration_cannot_be_had_the_reason_is_told(tmp_path: Path) -> None:
    act = Configured(champion="3")
    async with served(tmp_path, act, models=ALIASED) as here:
        act.status = 500
        reply = await here.ask()
        assert (reply.status, reply.problem) == (503, "busy")
        assert "the inference server answered 500" in reply.json()["detail"]
        act.status, act.parameters = 200, []
        while "answered 500" in (detail := (await here.ask()).json()["detail"]):
            await asyncio.sleep(0.05)
        assert "cannot be read" in detail


async def test_another_version_is_noticed_while_requests_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ASK_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(routes, "RETRY_SECONDS", 0.05)
    act = Configured(champion="3")
    async with served(tmp_path, act, models=ALIASED) as here:
        assert versions(await here.ask()) == {(200, "3")}
        act.parameters = saying(champion="4")
        replies: list[Reply] = []
        while len(replies) < 200 and (not replies or versions(replies[-1]) != {(200, "4")}):
            replies.append(await here.ask())
            await asyncio.sleep(0.01)
        assert versions(*replies) == {(200, "3"), (200, "4")}
        act.parameters = {}
        while len(replies) < 400 and replies[-1].status == 200:
            replies.append(await here.ask())
            await asyncio.sleep(0.01)
        assert versions(*replies) == {(200, "3"), (200, "4"), (503, None)}


async def test_what_was_said_holds_for_a_while_without_a_newer_answer_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "ASK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(routes, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(routes, "HOLD_SECONDS", 3.0)
    act = Configured(champion="3")
    async with served(tmp_path, act, models=ALIASED) as here:
        assert versions(await here.ask()) == {(200, "3")}
        act.status, asked = 500, act.asked
        while act.asked < asked + 2:  # once more asked, and answered
            assert versions(await here.ask()) == {(200, "3")}
        while (await here.ask()).status == 200:
            await asyncio.sleep(0.05)
        act.status = 200
        while (reply := await here.ask()).status == 503:
            await asyncio.sleep(0.05)
        assert versions(reply) == {(200, "3")}
