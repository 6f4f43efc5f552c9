import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from grpc_status import rpc_status
from tidegate_contracts import routing
from tidegate_proxy.grpc.upstream_stream import UpstreamStream
from tritonclient.grpc import service_pb2 as pb

from .harness import RAISED, Metadata, Rig, infer_request, method, refused, rig, until

names = itertools.count()


def reason(error: Any) -> str:
    status = rpc_status.from_call(error)
    assert status is not None
    return bytes(status.details[0].value).split(b"\n")[1][1:].decode().split("\x12")[0]


@pytest.fixture
def infer(running: Rig) -> Any:
    return method(running.channel(), "ModelInfer")


def test_a_replicas_own_error_comes_untouched(running: Rig, infer: Any) -> None:
    error: Any = refused(infer, infer_request("broken"), running.metadata())
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "no: 100 % ü"
    received = dict(error.trailing_metadata())
    assert (received["why"], received["why-bin"]) == ("because", b"\x00\xff")
    assert "grpc-status-details-bin" not in received


def test_credentials_and_tritons_restricted_key_are_not_forwarded_but_other_metadata_is(
    running: Rig, infer: Any
) -> None:
    infer(
        infer_request(),
        metadata=running.metadata(
            ("cookie", "a=b"),
            ("inference-server", "main"),
            ("triton-grpc-protocol-tidegate-control", "guess"),
            ("tidegate-control", "guess"),
            ("tidegate-sticky", "s"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("own", "a"),
            ("own-bin", b"\x00"),
        ),
    )
    received = running.stubs[0].requests[-1][2]
    assert {"traceparent", "own", "own-bin", "x-request-id", "user-agent"} == set(received)
    assert received["own-bin"] == b"\x00"


@pytest.mark.parametrize(
    ("model", "more", "code", "why"),
    [
        ("nothing", (), grpc.StatusCode.NOT_FOUND, "UNKNOWN"),
        ("secret", (), grpc.StatusCode.NOT_FOUND, "UNKNOWN"),
        ("../echo", (), grpc.StatusCode.NOT_FOUND, "UNKNOWN"),
        ("", (), grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED"),
        ("elsewhere", (), grpc.StatusCode.UNAVAILABLE, "BUSY"),
        ("echo", [("inference-server", "spare")], grpc.StatusCode.NOT_FOUND, "UNKNOWN"),
        ("echo", [("inference-server", "no/name")], grpc.StatusCode.NOT_FOUND, "UNKNOWN"),
        ("echo", [("x-api-key", "key")], grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED"),
        ("echo", [("x-domino-api-key", "key")], grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED"),
        ("echo", [("authorization", "Bearer x")], grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED"),
    ],
)
def test_denied_calls_are_refused_with_a_reason(
    running: Rig, infer: Any, model: str, more: Metadata, code: Any, why: str
) -> None:
    before = len(running.stubs[0].requests)
    error: Any = refused(infer, infer_request(model), running.metadata(*more))
    assert (error.code(), reason(error)) == (code, why)
    assert dict(error.initial_metadata() or error.trailing_metadata())["x-request-id"]
    assert len(running.stubs[0].requests) == before


@pytest.mark.parametrize("sent", [(), (("authorization", "Bearer no.token.at-all"),), (("x-api-key", "wrong"),)])
def test_invalid_credentials_are_refused_with_a_reason(running: Rig, infer: Any, sent: Metadata) -> None:
    before = len(running.stubs[0].requests)
    error: Any = refused(infer, infer_request(), sent)
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    assert "no.token" not in error.details()
    assert len(running.stubs[0].requests) == before


def test_a_caller_that_may_only_inspect_gets_permission_denied(running: Rig, infer: Any) -> None:
    metadata = running.metadata(token=running.token("bob", ["lookers"]))
    assert refused(infer, infer_request(), metadata).code() == grpc.StatusCode.PERMISSION_DENIED
    assert method(running.channel(), "ModelReady")(pb.ModelReadyRequest(name="echo"), metadata=metadata).ready


def test_inspecting_a_model_is_not_counted_as_a_call(one: Rig) -> None:
    channel, metadata = one.channel(), one.metadata()
    for name in ("Ready", "Metadata", "Config", "Statistics"):
        method(channel, f"Model{name}")(getattr(pb, f"Model{name}Request")(name="echo"), metadata=metadata)
    method(channel, "ModelInfer")(infer_request(), metadata=metadata)
    one.until(lambda: not one.proxy.shared.open_calls)
    [count] = one.proxy.shared.meter.calls.values()
    assert dict(count.statuses) == {0: 1}


def test_too_many_requests_are_refused_with_the_time_to_wait(running: Rig, infer: Any) -> None:
    metadata = running.metadata(token=running.token(f"busy{next(names)}"))
    for _ in range(200):
        infer(infer_request(), metadata=metadata)

    def infer_on(*arguments: Any, **how: Any) -> None:
        for _ in range(200):  # The first one, unless more than a second has passed: the limit grows by one per second.
            infer(*arguments, **how)

    error = refused(infer_on, infer_request(), metadata)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(error)
    assert status is not None
    retry = any_pb2.Any()
    retry.CopyFrom(status.details[1])
    assert retry.type_url.endswith("google.rpc.RetryInfo")
    delay = duration_pb2.Duration.FromString(retry.value[2:])
    assert 0 < delay.seconds + delay.nanos / 1e9 <= 1


def test_servers_report_liveness_and_metadata(running: Rig) -> None:
    channel = running.channel()
    assert method(channel, "ServerLive")(pb.ServerLiveRequest()).live
    main = running.metadata(("inference-server", "main"))
    assert method(channel, "ServerReady")(pb.ServerReadyRequest(), metadata=main).ready
    spare = running.metadata(("inference-server", "spare"))
    assert not method(channel, "ServerReady")(pb.ServerReadyRequest(), metadata=spare).ready
    assert method(channel, "ServerMetadata")(pb.ServerMetadataRequest(), metadata=main).name == "a"
    ask = method(channel, "ServerMetadata")
    assert refused(ask, pb.ServerMetadataRequest()).code() == grpc.StatusCode.UNAUTHENTICATED
    unknown = running.metadata(("inference-server", "absent"))
    assert refused(ask, pb.ServerMetadataRequest(), unknown).code() == grpc.StatusCode.NOT_FOUND


CLOSED = [
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
]
SPELLINGS = [
    "/inference.GRPCInferenceService/{}",
    "/inference.grpcinferenceservice/{}",
    "//inference.GRPCInferenceService/{}",
    "/inference.GRPCInferenceService//{}",
    "/inference.GRPCInferenceService/ModelInfer/../{}",
    "/inference.GRPCInferenceService/%52epository{}",
    "/inference.GRPCInferenceService/{}?x",
    "/{}",
    "/inference.GRPCInferenceService/{}\x00",
    "/inference.GRPCInferenceService/ModelInfer;{}",
    "http://x/inference.GRPCInferenceService/{}",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_model_control_has_no_spelling(running: Rig, spelling: str) -> None:
    channel, before = running.channel(), len(running.stubs[0].requests)
    for name in CLOSED:
        error = refused(channel.unary_unary(spelling.format(name)), b"", running.metadata())
        assert error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL), name
    assert len(running.stubs[0].requests) == before


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (infer_request("echo").SerializeToString() + b"\x0a\x06secret", "before its tensors"),
        (infer_request("echo").SerializeToString() + b"\x12\x011", "before its tensors"),
        (b"\x0a\x04echo\x0a\x06secret", "twice"),
        (b"\x0a\x04echo\x8a\x80\x00\x06secret", "twice"),
        (b"\x0a\x04echo\x12\x011\x12\x012", "twice"),
        (b"\x0a\x04echo\x2a\x05abc", "within a field"),
        (b"\x0a\x04echo\x2b\x2c", "no known type"),
        (b"\x0a\x04echo\x00\x00", "number 0"),
        (b"\x0a\x04echo" + b"\x2a\x00" * 10_001, "fields"),
        (b"\x0a\x04echo\x12\x0301a", "number from 1"),
        (b"\x0a\x04echo\x12\x0201", "number from 1"),
        (b"\x0a\x04echo\x1a\xff\xff\x04" + b"i" * 0x13FFF, "before the tensors are too large"),
        (infer_request("echo", b"x" * (9 << 20)).SerializeToString(), "The message is too large"),
    ],
    ids=range(13),
)
def test_an_ambiguous_or_too_large_message_reaches_no_replica(running: Rig, body: bytes, why: str) -> None:
    before = len(running.stubs[0].requests)
    call: Any = running.channel().unary_unary("/inference.GRPCInferenceService/ModelInfer")
    error: Any = refused(call, body, running.metadata())
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
    assert why in error.details()
    assert len(running.stubs[0].requests) == before


def test_the_callers_deadline_goes_on_and_the_proxys_own_caps_it(running: Rig, infer: Any) -> None:
    for given, most in ((1.0, 1.0), (60.0, 3.0), (None, 3.0)):
        began = time.monotonic()
        infer(infer_request(), metadata=running.metadata(), timeout=given)
        left, took = running.stubs[0].seconds_left[-1], time.monotonic() - began
        assert left is not None
        assert most - took - 0.1 < left <= most + 0.1  # clients round up


def test_a_call_to_a_hung_replica_times_out_and_is_counted(running: Rig, infer: Any) -> None:
    stub = running.stubs[0]
    for timeout in (1.0, 5):  # the caller's deadline, which the replica gets too, and the proxy's limit of 3 s
        stub.cancelled.clear()
        stub.release.clear()
        error = refused(infer, infer_request("hang"), running.metadata(), timeout)
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert stub.cancelled.wait(3)
        stub.release.set()
    running.until(lambda: not running.proxy.shared.open_calls and not running.proxy.shared.limiter.in_flight)


def test_a_call_whose_caller_has_left_keeps_its_slot_until_the_replica_has_answered(running: Rig, infer: Any) -> None:
    stub, shared = running.stubs[0], running.proxy.shared
    stub.cancelled.clear()
    stub.release.clear()
    before = len(stub.requests)
    call = infer.future(infer_request("hang"), metadata=running.metadata())
    until(lambda: len(stub.requests) > before)
    call.cancel()
    running.until(lambda: [type(each) for each in shared.open_calls] == [UpstreamStream])
    assert (shared.limiter.in_flight, len(shared.open_calls)) == (1, 1)
    assert shared.memory.callers.held > 0
    assert not stub.cancelled.is_set(), "the replica gets no reset"
    stub.release.set()
    running.until(lambda: not running.proxy.shared.open_calls and not running.proxy.shared.limiter.in_flight)
    pools = running.proxy.config.routes.pools
    assert all(replica.in_flight == 0 for pool in pools.values() for replica in pool.replicas)


def test_calls_are_counted(running: Rig, infer: Any) -> None:
    count = running.proxy.meter.calls["main", "echo", "grpc"]
    ended, came, went = dict(count.statuses), count.bytes_in, count.bytes_out
    infer(infer_request("echo", b"x" * 1000), metadata=running.metadata())
    running.until(lambda: count.statuses[0] == ended.get(0, 0) + 1)
    assert 1000 < count.bytes_in - came < 1100
    assert 1000 < count.bytes_out - went < 1100
    infer_broken = running.proxy.meter.calls["main", "broken", "grpc"]
    refused(infer, infer_request("broken"), running.metadata())
    running.until(lambda: infer_broken.statuses[9] >= 1)


SHARES = (routing.VersionShare(version=1, weight=20), routing.VersionShare(version=2, weight=80))


@pytest.fixture
def split(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, models=[routing.Model(name="echo", server="main", pool="one", versions=SHARES)]) as running:
        yield running


def test_a_requested_version_is_served_and_a_sticky_value_or_a_sequence_keeps_one(split: Rig) -> None:
    call = method(split.channel(), "ModelInfer")
    assert call(infer_request(model_version="1"), metadata=split.metadata()).model_version == "1"
    assert call(infer_request(model_version="7"), metadata=split.metadata()).model_version == "7"
    sticky = {
        call(infer_request(), metadata=split.metadata(("tidegate-sticky", "me"))).model_version for _ in range(10)
    }
    assert len(sticky) == 1
    for number in range(5):
        found = set()
        for _ in range(5):
            request = infer_request()
            request.parameters["sequence_id"].int64_param = 1000 + number
            found.add(call(request, metadata=split.metadata()).model_version)
        assert len(found) == 1


def test_an_error_comes_as_the_replica_wrote_it_and_the_log_has_no_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    with rig(tmp_path, models=("raises",)) as failing:
        error = refused(method(failing.channel(), "ModelInfer"), infer_request("raises"), failing.metadata())
        assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, RAISED)
        until(lambda: bool(caplog.records))
    [line] = [vars(record)["data"] for record in caplog.records]
    assert (line["why"], line["server"], line["pool"]) == ("in 'e', ValueError: 100 % ü in model.py", "main", "one")
    assert "problem" not in line
