"""What Triton says went wrong comes over gRPC as well: short, and without paths or tracebacks."""

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy.grpc.protobuf import framed
from tidegate_proxy.grpc.stream_errors import StreamErrors
from tidegate_proxy.told_errors import MOST_ERROR
from tritonclient.grpc import service_pb2 as pb

from .harness import Rig, Talk, infer_request, method, refused, rig, until

TOLD = "in 'e', ValueError: 100 % ü in model.py"


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, models=("raises",)) as running:
        yield running


def test_the_status_says_what_was_wrong_without_paths_and_tracebacks(
    failing: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    error = refused(method(failing.channel(), "ModelInfer"), infer_request("raises"), failing.metadata())
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, TOLD)
    until(lambda: bool(caplog.records))
    [said] = [vars(record)["said"] for record in caplog.records]
    assert (said["why"], said["server"], said["pool"]) == (TOLD, "main", "one")
    assert "problem" not in said


def test_an_error_within_a_stream_is_plain_too_and_what_comes_with_it_is_kept(failing: Rig) -> None:
    talk = Talk(failing)
    for number in ("1", "2"):
        talk.say(infer_request("raises", id=number))
        heard = talk.hear()
        assert heard.error_message == TOLD
        assert heard.infer_response.id == number
    talk.end()


ANSWERS = st.one_of(
    st.builds(lambda data: pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(id=data)), st.text()),
    st.builds(
        lambda: pb.ModelStreamInferResponse(error_message="at /a/b", infer_response=pb.ModelInferResponse(id="1"))
    ),
    st.just(pb.ModelStreamInferResponse()),
    st.just(pb.ModelStreamInferResponse(error_message="x" * 2 * MOST_ERROR)),
)


@given(st.lists(ANSWERS, max_size=6), st.lists(st.integers(1, 2 * MOST_ERROR)), st.integers(1, 50))
def test_messages_come_whole_and_in_order_in_whatever_pieces_they_come(
    answers: list[Any], sizes: list[int], least: int
) -> None:
    errors = StreamErrors(lambda said: said.replace("/a/", "")[:100])
    data, went = b"".join(framed(each.SerializeToString()) for each in answers), b""
    for size in [least, least, *sizes, len(data)]:
        went += errors.feed(data[:size])
        data = data[size:]
    for each in answers:
        length = int.from_bytes(went[1:5])
        found, went = pb.ModelStreamInferResponse.FromString(went[5 : 5 + length]), went[5 + length :]
        assert found.error_message == each.error_message.replace("/a/", "")[:100]
        assert found.infer_response == each.infer_response
    assert went == b""


def test_an_error_that_comes_compressed_within_a_stream_is_plain_too_and_others_stay_as_they_are() -> None:
    errors = StreamErrors(lambda said: said.replace("/a/", ""))
    answer = pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(id="1")).SerializeToString()
    error = pb.ModelStreamInferResponse(error_message="at /a/b").SerializeToString()
    packed = [b"\1" + len(data).to_bytes(4) + data for data in map(gzip.compress, (answer, error))]
    unknown = b"\1\0\0\0\4nogz"
    plain = framed(pb.ModelStreamInferResponse(error_message="at b").SerializeToString())
    data, went = b"".join((*packed, unknown)), b""
    for start in range(0, len(data), 7):
        went += errors.feed(data[start : start + 7])
    assert went == packed[0] + plain + unknown
