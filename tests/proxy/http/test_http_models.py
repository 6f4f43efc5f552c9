import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy.kinds import KINDS

from .running_proxy import ENVELOPE, MODEL, PATH, RIG, Reply, RunningProxy, model, request, running_proxy, served
from .upstream import Received, Upstream, answer, answering, only, raw, upstream

pytestmark = pytest.mark.anyio
KEEPS = b'{"sequence_batching":{}}'
keeper = only("GET", answering(KEEPS))


def body_of(sequence: object, size: int = 1) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [size], "data": [1.5] * size}
    return json.dumps({"inputs": [tensor], "parameters": {"sequence_id": sequence, "sequence_start": False}}).encode()


def calls(replica: Upstream) -> list[Received]:
    return [each for each in replica.requests if each.line.startswith("POST")]


async def spread(here: RunningProxy, first: Upstream, body: Callable[[int], bytes]) -> None:
    """Send each sequence's request several times, all to one replica, until both replicas have had a sequence. Ports
    are random, and so are the replicas of sequences. All sequences go to one replica in one of 2**63 runs."""
    used: set[int] = set()
    for number in range(1, 65):
        where: set[int] = set()
        for _ in range(6):
            before = len(calls(first))
            assert (await here.ask(body(number))).status == 200
            where.add(0 if len(calls(first)) > before else 1)
        assert len(where) == 1
        used |= where
        if number >= 4 and len(used) == 2:
            return
    raise AssertionError("all sequences went to one replica")


@pytest.mark.parametrize("how", ["chunked", "gzip", "binary", "zeros", "predict", "large"])
async def test_however_it_is_sent(tmp_path: Path, how: str) -> None:
    def one(number: int) -> bytes:
        body = body_of(number)
        if how == "chunked":
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:20], body[20:]))
            return request(body=b"", Transfer_Encoding="chunked") + chunks + b"0\r\n\r\n"
        if how == "gzip":
            return request(body=gzip.compress(body), Content_Encoding="gzip")
        if how in ("binary", "zeros"):
            zeros = "0" * 5_000 * (how == "zeros")
            return request(body=body + bytes(400), Inference_Header_Content_Length=f"{zeros}{len(body)}")
        if how == "predict":
            return request("/predict", ENVELOPE % body)
        return request(body=body_of(number, 100_000))

    async with upstream(keeper) as first, upstream(keeper) as second, running_proxy(tmp_path, first, second) as here:
        await spread(here, first, one)


async def test_models_without_sequences_are_not_read(tmp_path: Path) -> None:
    act = only("GET", answering(b'{"max_batch_size":8}'))
    async with upstream(act) as first, upstream(act) as second, running_proxy(tmp_path, first, second) as here:
        for _ in range(40):
            assert (await here.ask(request(body=body_of(7)))).status == 200
        assert calls(first)
        assert calls(second)
        found = [each for replica in (first, second) for each in replica.requests if each.line.startswith("GET")]
        assert len(found) == 1, "the configuration is requested once"


async def test_requests_wait_while_the_model_is_checked_for_sequences(tmp_path: Path) -> None:
    slowly = only("GET", answering(KEEPS, seconds=0.3))
    async with upstream(slowly) as first, upstream(slowly) as second, running_proxy(tmp_path, first, second) as here:
        data = [request(body=body_of(number)) for number in range(1, 33)] * 2
        assert {reply.status for reply in await asyncio.gather(*(here.ask(each) for each in data))} == {200}
        bodies = [{each.body for each in calls(replica)} for replica in (first, second)]
        assert all(bodies)
        assert not bodies[0] & bodies[1], "one sequence went to both"


async def test_a_sequence_stays_at_one_version_even_of_one_replica(tmp_path: Path) -> None:
    async with served(tmp_path, keeper, models=[model(MODEL, {1: 50, 2: 50})]) as here:
        found = []
        for number in range(1, 13):
            replies = [await here.ask(request(body=body_of(number))) for _ in range(6)]
            found.append({reply.headers["tidegate-model-version"] for reply in replies})
        assert {len(versions) for versions in found} == {1}
        assert set().union(*found) == {"1", "2"}


async def test_a_sequence_stays_even_if_the_model_cannot_be_checked(tmp_path: Path) -> None:
    silent = only("GET", raw(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))
    async with upstream(silent) as first, upstream(silent) as second, running_proxy(tmp_path, first, second) as here:
        await spread(here, first, lambda number: request(body=body_of(number)))


async def test_the_check_for_sequences_has_the_connect_timeout(tmp_path: Path) -> None:
    late = only("GET", answering(KEEPS, seconds=4))
    async with upstream(late) as one, served(tmp_path, late, connect_timeout_seconds=1) as here:
        here.leads_to(one, here.replica)
        await here.look_up()
        assert (await here.ask(seconds=3)).status == 200


def sequence_of(body: bytes) -> bytes | None:
    async def unpacked(_encoding: bytes, _most: int | None) -> bytes:
        return body

    return asyncio.run(KINDS["triton"].sequence_of(b"", unpacked))


@given(st.integers() | st.text(max_size=20))
def test_similar_sequence_ids_differ(sequence: int | str) -> None:
    found = sequence_of(body_of(sequence))
    assert (found is None) == (not sequence)
    if found is not None:
        assert found != sequence_of(body_of(f"{sequence}x"))


@given(st.binary(max_size=100))
def test_nonsense_is_left_to_the_replica(body: bytes) -> None:
    sequence_of(body)


# --- aliases
ALIASED = (model(alias="champion"),)


def parameters_of(**versions: object) -> dict[str, object]:
    return {f"tidegate.alias.{alias}": {"string_value": version} for alias, version in versions.items()}


class Configured:
    def __init__(self, **versions: str) -> None:
        self.parameters: object = parameters_of(**versions)
        self.status = 200
        self.requests = 0

    async def __call__(self, _: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        path = received.line.split()[1]
        if not path.endswith("/config"):
            await answer(writer, path.encode())
            return
        self.requests += 1
        body = json.dumps({"name": MODEL, "parameters": self.parameters, "max_batch_size": 8}).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (self.status, len(body), body))


def versions(*replies: Reply) -> set[tuple[int, str | None]]:
    return {(each.status, each.headers.get("tidegate-model-version")) for each in replies}


async def several(here: RunningProxy, number: int = 20) -> list[Reply]:
    return list(await asyncio.gather(*(here.ask() for _ in range(number))))


async def test_requests_get_the_version_of_the_alias_which_is_queried_once(tmp_path: Path) -> None:
    act = Configured(champion="3", challenger="4")
    async with served(tmp_path, act, models=ALIASED) as here:
        replies = await several(here)
        assert versions(*replies) == {(200, "3")}
        assert {each.body.decode() for each in replies} == {f"/v2/models/{MODEL}/versions/3/infer"}
        assert versions(await here.ask(request(PATH.replace("/infer", "/versions/9/infer")))) == {(200, "9")}
        assert act.requests == 1


@pytest.mark.parametrize("aliases", [{"other": "3"}, {"champion": "newest"}, {"champion": "0"}, {"champion": ""}])
async def test_without_a_version_no_other_answers_instead(tmp_path: Path, aliases: dict[str, str]) -> None:
    act = Configured(**aliases)
    async with served(tmp_path, act, models=ALIASED) as here:
        reply = await here.ask()
        assert (reply.status, reply.problem) == (503, "busy")
        assert "tidegate.alias.champion of the model's configuration is not" in reply.json()["detail"]
        assert reply.headers["retry-after"] == "1"
        assert all("/config" in each.line for each in here.replica.requests)


@pytest.mark.parametrize("parameters", [[], parameters_of(champion=3), parameters_of(champion=None)])
async def test_if_the_configuration_is_unavailable_the_response_has_the_reason(
    tmp_path: Path, parameters: object
) -> None:
    act = Configured(champion="3")
    async with served(tmp_path, act, models=ALIASED) as here:
        act.status = 500
        reply = await here.ask()
        assert (reply.status, reply.problem) == (503, "busy")
        assert "the inference server returned 500" in reply.json()["detail"]
        act.status, act.parameters = 200, parameters
        while "returned 500" in (detail := (await here.ask()).json()["detail"]):
            await asyncio.sleep(0.05)
        assert "cannot be read" in detail


async def test_another_version_is_noticed_while_requests_go_on(tmp_path: Path) -> None:
    act, often = Configured(champion="3"), replace(RIG, alias_seconds=0.1, retry_seconds=0.05)
    async with served(tmp_path, act, models=ALIASED, tunables=often) as here:
        assert versions(await here.ask()) == {(200, "3")}
        act.parameters = parameters_of(champion="4")
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


async def test_an_alias_stays_valid_for_a_limited_time_without_a_newer_response(tmp_path: Path) -> None:
    act = Configured(champion="3")
    often = replace(RIG, alias_seconds=0.05, retry_seconds=0.05, alias_hold_seconds=3.0)
    async with served(tmp_path, act, models=ALIASED, tunables=often) as here:
        assert versions(await here.ask()) == {(200, "3")}
        act.status, before = 500, act.requests
        while act.requests < before + 2:  # another request, and its response
            assert versions(await here.ask()) == {(200, "3")}
        while (await here.ask()).status == 200:
            await asyncio.sleep(0.05)
        act.status = 200
        while (reply := await here.ask()).status == 503:
            await asyncio.sleep(0.05)
        assert versions(reply) == {(200, "3")}
