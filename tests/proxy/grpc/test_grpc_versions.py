"""Over gRPC, too: a model's alias decides on its version, a candidate gets copies, and calls have spans when asked."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate_contracts import routing
from tidegate_contracts.triton import LIVE_PATH
from tidegate_proxy.mirror import MOST_BYTES
from tritonclient.grpc import service_pb2 as pb

from ..rigs.issuer import Reply, answering, json_reply
from .harness import Rig, Talk, infer_request, method, rig


@pytest.fixture
def aliased(tmp_path: Path) -> Iterator[tuple[Rig, list[str]]]:
    """A proxy whose replica tells over HTTP which version is the champion; and what it was asked there."""
    asked: list[str] = []

    def tell(path: str, _: Mapping[str, str]) -> Reply:
        if path != LIVE_PATH:
            asked.append(path)
        return json_reply({"parameters": {"tidegate.alias.champion": {"string_value": "7"}}})

    models = [routing.Model(name=name, server="main", pool="one", alias="champion") for name in ("echo", "slow")]
    with answering(tell) as url, rig(tmp_path, models=models) as running:
        running.setup.leads_to(int(url.rpartition(":")[2]))
        running.do(running.setup.look_up())
        yield running, asked


def test_calls_get_the_version_that_the_alias_stands_for(aliased: tuple[Rig, list[str]]) -> None:
    rig, asked = aliased
    infer = method(rig.channel(), "ModelInfer")
    calls = [infer.future(infer_request(), metadata=rig.metadata()) for _ in range(10)]
    assert {call.result().model_version for call in calls} == {"7"}
    assert {dict(call.initial_metadata())["tidegate-model-version"] for call in calls} == {"7"}
    assert len(asked) == 1
    assert infer(infer_request(model_version="2"), metadata=rig.metadata()).model_version == "2"


def test_each_message_of_a_stream_gets_the_version_of_its_models_alias(aliased: tuple[Rig, list[str]]) -> None:
    rig, asked = aliased
    talk = Talk(rig)
    talk.say(infer_request("echo"), infer_request("slow"), infer_request("echo"))
    assert [talk.hear().infer_response.model_version for _ in range(3)] == ["7"] * 3
    assert len(asked) == 2
    talk.end()


SERVED = (routing.VersionShare(version=1, weight=100),)
MODEL = routing.Model(
    name="echo", server="main", pool="one", versions=SERVED, mirror=routing.Mirror(version=3, percent=100)
)


def copies(running: Rig) -> list[Any]:
    return [
        request for name, request, _ in running.stubs[0].asked if name == "ModelInfer" and request.model_version == "3"
    ]


def outcomes(running: Rig) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (_, _, outcome), number in running.proxy.meter.mirrored.items():
        counted[outcome] += number
    return dict(counted)


@pytest.mark.parametrize("size", [6, 300_000, MOST_BYTES])
def test_the_candidate_gets_what_the_served_version_got(tmp_path: Path, size: int) -> None:
    with rig(tmp_path, models=(MODEL,)) as running:
        request = infer_request("echo", b"x" * size, id="seven")
        metadata = running.metadata(("traceparent", "00-ab-cd-01"))
        answer = method(running.channel(), "ModelInfer")(request, metadata=metadata, timeout=5)
        assert (answer.model_version, bytes(answer.raw_output_contents[0])) == ("1", b"x" * size)
        if size == MOST_BYTES:
            running.until(lambda: outcomes(running) == {"too-large": 1})
            assert not copies(running)
        else:
            running.until(lambda: outcomes(running) == {"answered": 1})
            [copy] = copies(running)
            request.model_version = "3"
            assert copy == request
            assert {said.get("traceparent") for _, _, said in running.stubs[0].asked} == {"00-ab-cd-01"}
        running.until(lambda: running.proxy.shared.mirror.in_flight == running.proxy.shared.mirror.held == 0)


def test_streams_sequences_and_the_candidate_itself_are_not_copied(tmp_path: Path) -> None:
    with rig(tmp_path, models=(MODEL,)) as running:
        channel, metadata = running.channel(), running.metadata()
        infer = method(channel, "ModelInfer")
        assert infer(infer_request(model_version="3"), metadata=metadata, timeout=5).model_version == "3"
        in_sequence = infer_request()
        in_sequence.parameters["sequence_id"].int64_param = 7
        infer(in_sequence, metadata=metadata, timeout=5)
        list(method(channel, "ModelStreamInfer")(iter([infer_request()]), metadata=metadata, timeout=5))
        method(channel, "ModelReady")(pb.ModelReadyRequest(name="echo"), metadata=metadata, timeout=5)
        running.until(lambda: outcomes(running) == {"sequence": 1})
        assert len(copies(running)) == 1


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
STATE = "a=" + "x" * 300
CONTEXT = (("traceparent", PARENT), ("tracestate", STATE))


def said(running: Rig) -> dict[str, Any]:
    [(_, _, metadata)] = running.stubs[0].asked
    return {name: metadata.get(name) for name in ("traceparent", "tracestate", "other")}


def kept(running: Rig) -> list[dict[str, Any]]:
    tracer = running.proxy.shared.tracer
    assert tracer is not None
    return list(tracer._waiting)


def test_a_sampled_call_has_a_span_between_the_callers_and_the_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate_proxy.telemetry.traces.EXPORT_SECONDS", 60)
    with rig(tmp_path, otlp_endpoint="http://127.0.0.1:1") as running:
        metadata = running.metadata(*CONTEXT, ("other", "y" * 200))
        infer = method(running.channel(), "ModelInfer")
        infer(infer_request(), metadata=metadata, timeout=5)
        [span] = kept(running)
        assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT[36:52], STATE)
        sent = {"traceparent": f"00-{TRACE}-{span['spanId']}-01", "tracestate": STATE, "other": "y" * 200}
        assert said(running) == sent
        assert (span["name"], span["status"]) == ("inference.GRPCInferenceService/ModelInfer", {})
        told = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
        assert (
            told.items()
            >= {
                "rpc.system": "grpc",
                "rpc.service": "inference.GRPCInferenceService",
                "rpc.method": "ModelInfer",
                "rpc.grpc.status_code": "0",
                "tidegate.server": "main",
                "tidegate.model": "echo",
            }.items()
        )
        with pytest.raises(grpc.RpcError):
            infer(infer_request("nothing"), metadata=metadata, timeout=5)
        infer(infer_request(), metadata=running.metadata(), timeout=5)
        assert len(kept(running)) == 1, "without a grant, or without a sampled parent, there is no span"
