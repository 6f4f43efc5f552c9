import itertools
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_status import rpc_status
from tidegate_contracts import routing
from tidegate_proxy.grpc.protobuf import framed
from tidegate_proxy.grpc.upstreams import STREAM_WINDOW
from tidegate_proxy.guests import MOST_UNSENT

from lab.local_plane.proxy import write_tables

from .harness import LARGE, SERVICE, Rig, Talk, infer_request, method, replica_of, rig, until
from .peer import DATA, HEADERS, WIDE, Peer, frame, request

SHARES = (routing.VersionShare(version=1, weight=50), routing.VersionShare(version=2, weight=50))
SPLIT = routing.Model(name="split", server="main", pool="one", versions=SHARES)
MODELS = ("echo", "hang", "many", "broken", "large", "secret", SPLIT)
names = itertools.count()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("three"), replicas=3, models=MODELS) as running:
        yield running


def talk_in(rig: Rig, timeout: float | None = None) -> Talk:
    """Open a stream as a new caller, which has a separate rate limit."""
    return Talk(rig, timeout=timeout, token=rig.token(f"s{next(names)}"))


def test_messages_come_and_go_in_turn_at_one_replica(three: Rig) -> None:
    talk = talk_in(three)
    replicas = set()
    for number in range(30):
        response = talk.exchange(id=str(number))
        assert response.id == str(number)
        replicas.add(replica_of(response))
    talk.end()
    with pytest.raises(StopIteration):
        talk.receive()
    assert len(replicas) == 1
    assert talk.call.code() == grpc.StatusCode.OK


@pytest.mark.parametrize(("model", "code", "level"), [("echo", 0, "INFO"), ("many", 13, "WARNING")])
def test_a_stream_in_which_a_message_reports_an_error_counts_as_failed(
    one: Rig, caplog: pytest.LogCaptureFixture, model: str, code: int, level: str
) -> None:
    with caplog.at_level("INFO", "tidegate_proxy.calls"):
        talk = talk_in(one)
        talk.exchange(model, id="x" * 20_000)
        talk.end()
        assert [message.error_message for message in talk.call][-1:] == (["the end"] if code else [])
        assert talk.call.code() == grpc.StatusCode.OK, "the caller gets what the server sent"
        one.until(lambda: not one.proxy.shared.open_calls)
    [count] = one.proxy.shared.meter.calls.values()
    assert dict(count.statuses) == {code: 1}
    [line] = [each for each in caplog.records if each.name == "tidegate_proxy.calls"]
    assert (line.levelname, line.data["status"]) == (level, code)  # type: ignore[attr-defined]


def test_each_message_is_authorised(three: Rig) -> None:
    for second, code in (
        ("secret", grpc.StatusCode.NOT_FOUND),
        ("elsewhere", grpc.StatusCode.INVALID_ARGUMENT),
        ("nothing", grpc.StatusCode.NOT_FOUND),
    ):
        before = sum(len(stub.requests) for stub in three.stubs)
        talk = talk_in(three)
        talk.exchange()
        talk.send(infer_request(second))
        assert talk.code() == code
        assert sum(len(stub.requests) for stub in three.stubs) == before + 1


def test_each_message_counts_against_the_limit(three: Rig) -> None:
    talk = talk_in(three)
    for number in range(200):
        talk.exchange(id=str(number))
    talk.send(*(infer_request() for _ in range(200)))  # the limit grows by one per second
    assert talk.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stream_has_one_version_of_a_model(three: Rig) -> None:
    seen = set()
    for _ in range(24):  # each has a random version
        talk = talk_in(three)
        talk.send(*(infer_request("split") for _ in range(6)))
        versions = {talk.receive().infer_response.model_version for _ in range(6)}
        assert len(versions) == 1
        seen |= versions
        talk.end()
    assert seen == {"1", "2"}


def test_sequences_stay_at_their_replica_whichever_way_they_come(three: Rig) -> None:
    call = method(three.channel(), "ModelInfer")
    used = set()
    for number in range(16):  # all of them randomly at one of three replicas: once in ten million runs
        found = set()
        request = infer_request()
        request.parameters["sequence_id"].int64_param = number + 1
        for _ in range(4):
            found.add(replica_of(call(request, metadata=three.metadata())))
        talk = talk_in(three)
        talk.send(request)
        found.add(replica_of(talk.receive().infer_response))
        talk.end()
        assert len(found) == 1
        used |= found
    assert len(used) > 1


def test_a_caller_that_disconnects_frees_the_replica(three: Rig) -> None:
    for stub in three.stubs:
        stub.cancelled.clear()
    talk = talk_in(three)
    talk.exchange()
    talk.call.cancel()
    until(lambda: any(stub.cancelled.is_set() for stub in three.stubs))
    three.until(lambda: not three.proxy.shared.open_calls and not three.proxy.grpc.context.streams.in_flight)


def test_a_deadline_ends_a_stream(three: Rig) -> None:
    talk = talk_in(three, timeout=0.5)
    talk.send(infer_request())
    assert talk.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    three.until(lambda: not three.proxy.shared.open_calls)


def test_a_stream_without_a_message_ends_well(three: Rig) -> None:
    talk = talk_in(three)
    talk.end()
    with pytest.raises(StopIteration):
        talk.receive()


def test_idle_streams_keep_no_other_call_waiting_and_their_number_is_bounded(three: Rig) -> None:
    talks = [talk_in(three) for _ in range(6)]  # of 8 slots: two are for other models
    for talk in talks:
        talk.exchange()
    assert method(three.channel(), "ModelInfer")(infer_request(), metadata=three.metadata(), timeout=2)
    waiting = talk_in(three)
    waiting.send(infer_request())
    talks[0].end()
    waiting.receive()
    for talk in (*talks[1:], waiting):
        talk.end()
    three.until(lambda: not three.proxy.shared.open_calls)


def test_a_caller_that_stops_reading_pauses_its_stream_without_using_memory(three: Rig) -> None:
    number = 20
    head = request(("authorization", f"Bearer {three.token('slow')}"), path=f"/{SERVICE}/ModelStreamInfer")
    message = framed(infer_request("large").SerializeToString())
    peer = Peer(three, WIDE).send(frame(HEADERS, 4, 1, head), frame(DATA, 1, 1, message * number))

    def held() -> int:
        callers = list(three.proxy.grpc.connections)
        unsent = sum(stream.unsent_bytes for caller in callers for stream in caller.streams.values())
        return unsent + sum(caller.transport.get_write_buffer_size() for caller in callers)

    three.until(lambda: held() > MOST_UNSENT)
    most, end = 0, time.monotonic() + 2
    while time.monotonic() < end:
        most = max(most, three.on_loop(held))
        time.sleep(0.01)
    assert most < MOST_UNSENT + 2 * STREAM_WINDOW  # it grows no further
    assert len(three.proxy.shared.open_calls) == 1
    frames = itertools.takewhile(lambda each: not (each[0] == HEADERS and each[1] & 1), peer.frames())
    received = sum(len(payload) for kind, _, _, payload in frames if kind == DATA)
    assert received > number * LARGE
    three.until(lambda: not three.proxy.shared.open_calls)


def test_a_stream_whose_model_has_moved_to_another_pool_must_be_reopened(one: Rig) -> None:
    folder = one.setup.root
    talk, other = Talk(one), Talk(one)
    talk.exchange()
    other.exchange("slow")
    table = routing.RoutingTable.model_validate_json((folder / "routing" / "routing.json").read_bytes())
    server = table.servers[0]
    pools = (*server.pools, server.pools[0].model_copy(update={"name": "two"}))
    models = tuple(each.model_copy(update={"pool": "two"}) if each.name == "echo" else each for each in table.models)
    servers = (server.model_copy(update={"pools": pools}), *table.servers[1:])
    before = one.proxy.shared.authorizer.generation
    write_tables(folder, table.model_copy(update={"servers": servers, "models": models}))
    one.until(lambda: one.proxy.shared.authorizer.generation > before)
    other.exchange("slow")  # its model is still in the same pool, so the stream continues
    talk.send(infer_request())
    assert talk.code() == grpc.StatusCode.UNAVAILABLE
    assert "open another stream" in talk.call.details()
    status = rpc_status.from_call(talk.call)
    assert status is not None
    assert any(each.type_url.endswith("RetryInfo") for each in status.details)
    again = Talk(one)
    again.exchange()
    again.send(infer_request("slow"))
    assert again.code() == grpc.StatusCode.INVALID_ARGUMENT
