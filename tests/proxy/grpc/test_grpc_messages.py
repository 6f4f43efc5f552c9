"""What is read of messages: the same however they are cut, and whoever wrote them; unpacked, they hold nobody up."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_proxy.grpc.messages import MOST_HEAD, STEP, MessageReader, RequestedModel
from tidegate_proxy.problems import Problem
from tritonclient.grpc import service_pb2 as pb

from .harness import infer_request, method, rig

LIMIT = 1 << 20
parameter = st.one_of(
    st.builds(lambda value: pb.InferParameter(int64_param=value), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda value: pb.InferParameter(uint64_param=value), st.integers(0, 2**64 - 1)),
    st.builds(lambda value: pb.InferParameter(string_param=value), st.text(max_size=20)),
    st.builds(lambda value: pb.InferParameter(double_param=value), st.floats(allow_nan=False)),
)
tensor = st.builds(
    lambda name, shape, words: pb.ModelInferRequest.InferInputTensor(
        name=name, datatype="BYTES", shape=shape, contents=pb.InferTensorContents(bytes_contents=words)
    ),
    st.text(max_size=10),
    st.lists(st.integers(0, 2**40), max_size=4),
    st.lists(st.binary(max_size=30), max_size=4),
)
message = st.builds(
    lambda name, version, about, parameters, inputs, raw: pb.ModelInferRequest(
        model_name=name, model_version=version, id=about, parameters=parameters, inputs=inputs, raw_input_contents=raw
    ),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,40}", fullmatch=True),
    st.sampled_from(["", "1", "42"]),
    st.text(max_size=20),
    st.dictionaries(st.sampled_from(["sequence_id", "priority", "é"]), parameter, max_size=3),
    st.lists(tensor, max_size=3),
    st.lists(st.binary(max_size=400), max_size=4),
)


def framed(body: bytes, packed: str = "") -> bytes:
    if packed:
        body = gzip.compress(body) if packed == "gzip" else zlib.compress(body)
    return bytes((packed != "",)) + len(body).to_bytes(4) + body


def taken(data: bytes, cuts: list[int], version: str | None, packed: str = "") -> tuple[list[RequestedModel], bytes]:
    """What is asked, and what is passed on, when it comes in pieces."""
    reader = MessageReader(LIMIT, packed.encode() or b"identity", False)
    asked: list[RequestedModel] = []
    passed = b""
    found: RequestedModel | None = None
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        if start == end:
            continue
        reader.feed(data[start:end])
        while True:
            if found is None:
                found = reader.requested()
                if found is None:
                    break
                asked.append(found)
            passed += reader.take(version or found.version)
            if reader.behind:
                continue
            if not reader.between:
                break
            found = None
    assert reader.idle
    return asked, passed


@given(
    st.lists(message, min_size=1, max_size=3),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from([None, "7"]),
)
@settings(deadline=None)
def test_messages_are_understood_and_get_their_version_wherever_they_are_cut(
    messages: list[pb.ModelInferRequest], cuts: list[int], version: str | None
) -> None:
    for packed in ("", "gzip", "deflate"):
        data = b"".join(framed(each.SerializeToString(), packed) for each in messages)
        asked, passed = taken(data, cuts, version, packed)
        for each, found in zip(messages, asked, strict=True):
            assert (found.model, found.version) == (each.model_name, each.model_version or None)
            said = each.parameters["sequence_id"] if "sequence_id" in each.parameters else pb.InferParameter()
            assert found.sequence.decode() == str(said.int64_param or said.uint64_param or said.string_param or "")
            length = int.from_bytes(passed[1:5])
            assert passed[0] == 0
            got = pb.ModelInferRequest.FromString(passed[5 : 5 + length])
            expected = pb.ModelInferRequest.FromString(each.SerializeToString())
            expected.model_version = version or each.model_version
            assert got == expected
            passed = passed[5 + length :]
        assert passed == b""


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_whatever_comes_is_refused_or_means_to_triton_what_it_meant_here(body: bytes, cuts: list[int]) -> None:
    body = b"\x0a\x04echo" + body
    try:
        (asked,), passed = taken(framed(body), cuts, None)
    except Problem:
        return
    try:
        got = pb.ModelInferRequest.FromString(passed[5:])
    except Exception:
        return  # Triton refuses it, and so does this
    assert (got.model_name, got.model_version) == (asked.model, asked.version or "")


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_a_bomb_is_stopped_before_it_unfolds(packed: str) -> None:
    data = framed(b"\x0a\x04echo" + b"\x3a\x80\x80\x80\x08" + b"\0" * (16 << 20), packed)
    with pytest.raises(Problem) as problem:
        taken(data, [], None, packed)
    assert problem.value.type.word == "too-large"


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_only_what_decides_is_unpacked_before_it_is_known_who_asks_and_the_rest_in_steps(packed: str) -> None:
    body = pb.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(16 << 20)]).SerializeToString()
    data = framed(body, packed)
    reader = MessageReader(32 << 20, packed.encode(), False)
    tracemalloc.start()
    reader.feed(data)
    assert reader.requested() == RequestedModel("echo", None)
    reader.feed(b"")
    assert tracemalloc.get_traced_memory()[1] < 4 * MOST_HEAD
    tracemalloc.stop()
    steps = 0
    while not (passed := reader.take(None)):
        assert reader.behind
        steps += 1
    assert steps >= len(body) // STEP - 1
    assert passed == framed(body)
    assert reader.idle


def test_a_compressed_head_that_does_not_end_is_refused_without_unpacking_the_rest() -> None:
    reader = MessageReader(32 << 20, b"gzip", False)
    reader.feed(framed(b"\x1a\x80\x80\x80\x08" + bytes(16 << 20), "gzip"))
    with pytest.raises(Problem, match="before the tensors"):
        reader.requested()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x01\0\0\0\x05nogz!", id="no gzip"),
        pytest.param(b"\x02\0\0\0\x01a", id="no flag that gRPC knows"),
        pytest.param(framed(b"\x0a\x04echo", "gzip")[:-5] + b"xxxxx", id="a wrong checksum"),
    ],
)
def test_what_is_not_packed_as_was_said_is_refused(data: bytes) -> None:
    with pytest.raises(Problem) as problem:
        taken(data, [], None, "gzip")
    assert problem.value.type.word == "malformed"


def test_a_length_beyond_the_limit_is_refused_before_the_message_comes() -> None:
    with pytest.raises(Problem) as problem:
        MessageReader(LIMIT, b"identity", False).feed(b"\0" + (LIMIT + 1).to_bytes(4))
    assert problem.value.type.word == "too-large"


SIZE = 60 << 20
CALLS = 2


async def count_turns(turns: list[int]) -> None:
    while True:
        await asyncio.sleep(0)
        turns[0] += 1


def test_large_messages_that_unfold_from_few_bytes_arrive_whole_and_hold_nobody_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, steps = [0], Counter[int]()
    whole = MessageReader.take

    def take(self: MessageReader, version: str | None) -> bytes | bytearray:
        steps[turns[0]] += 1
        return whole(self, version)

    monkeypatch.setattr(MessageReader, "take", take)
    with rig(tmp_path, body_limit_bytes=64 << 20, request_timeout_seconds=60) as running:
        counting = asyncio.run_coroutine_threadsafe(count_turns(turns), running.loop)
        # The answer is short: what is looked at is the way there.
        infer = method(running.channel(), "ModelInfer")
        large = infer_request("broken", bytes(SIZE))
        packed = grpc.Compression.Gzip
        calls = [infer.future(large, metadata=running.metadata(), compression=packed) for _ in range(CALLS)]
        assert {call.code() for call in calls} == {grpc.StatusCode.FAILED_PRECONDITION}
        counting.cancel()
        assert {len(message.raw_input_contents[0]) for _, message, _ in running.stubs[0].asked} == {SIZE}
    # Each unpacks a step (test_grpc_messages), and in one turn each call may have one, and the one of its head.
    assert steps.total() >= CALLS * SIZE // STEP
    assert max(steps.values()) <= 2 * CALLS
