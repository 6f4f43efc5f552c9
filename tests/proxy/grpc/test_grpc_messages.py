import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate_proxy.grpc.messages import MessageReader, RequestedModel
from tidegate_proxy.grpc.protobuf import framed
from tidegate_proxy.problems import Problem
from tritonclient.grpc import service_pb2 as pb

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


def taken(data: bytes, cuts: list[int], version: str | None) -> tuple[list[RequestedModel], bytes]:
    """Return the requested models and the forwarded bytes for data that arrives in pieces."""
    reader = MessageReader(LIMIT, False)
    requested: list[RequestedModel] = []
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
                requested.append(found)
            passed += reader.take(version or found.version)
            if not reader.between:
                break
            found = None
    assert reader.idle
    return requested, passed


@given(
    st.lists(message, min_size=1, max_size=3),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from([None, "7"]),
)
@settings(deadline=None)
def test_messages_are_understood_and_get_their_version_wherever_they_are_cut(
    messages: list[pb.ModelInferRequest], cuts: list[int], version: str | None
) -> None:
    data = b"".join(framed(each.SerializeToString()) for each in messages)
    requested, passed = taken(data, cuts, version)
    for each, found in zip(messages, requested, strict=True):
        assert (found.model, found.version) == (each.model_name, each.model_version or None)
        sent = each.parameters["sequence_id"] if "sequence_id" in each.parameters else pb.InferParameter()
        assert found.sequence.decode() == str(sent.int64_param or sent.uint64_param or sent.string_param or "")
        length = int.from_bytes(passed[1:5])
        assert passed[0] == 0
        got = pb.ModelInferRequest.FromString(passed[5 : 5 + length])
        expected = pb.ModelInferRequest.FromString(each.SerializeToString())
        expected.model_version = version or each.model_version
        assert got == expected
        passed = passed[5 + length :]
    assert passed == b""


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_a_message_is_refused_or_means_the_same_to_triton_as_to_the_proxy(body: bytes, cuts: list[int]) -> None:
    body = b"\x0a\x04echo" + body
    try:
        (requested,), passed = taken(framed(body), cuts, None)
    except Problem:
        return
    try:
        got = pb.ModelInferRequest.FromString(passed[5:])
    except Exception:
        return  # Triton refuses it, and so does the proxy
    assert (got.model_name, got.model_version) == (requested.model, requested.version or "")


@pytest.mark.parametrize("flag", [b"\1", b"\2"])
def test_a_compressed_message_without_a_grpc_encoding_header_is_refused(flag: bytes) -> None:
    with pytest.raises(Problem) as problem:
        taken(flag + framed(b"\x0a\x04echo")[1:], [], None)
    assert problem.value.type.word == "malformed"


def test_a_length_beyond_the_limit_is_refused_before_the_message_comes() -> None:
    with pytest.raises(Problem) as problem:
        MessageReader(LIMIT, False).feed(b"\0" + (LIMIT + 1).to_bytes(4))
    assert problem.value.type.word == "too-large"
