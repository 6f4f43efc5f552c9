from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate_contracts import routing
from tidegate_contracts.triton import LIVE_PATH

from ..rigs.issuer import Reply, answering, json_reply
from .harness import RIG, Rig, Talk, infer_request, method, rig


@pytest.fixture
def aliased(tmp_path: Path) -> Iterator[tuple[Rig, list[str]]]:
    """Run a proxy whose replica returns the version of the alias over HTTP. Yield also the URLs of these requests."""
    paths: list[str] = []

    def respond(path: str, _: Mapping[str, str]) -> Reply:
        if path != LIVE_PATH:
            paths.append(path)
        return json_reply({"parameters": {"tidegate.alias.champion": {"string_value": "7"}}})

    models = [routing.Model(name=name, server="main", pool="one", alias="champion") for name in ("echo", "slow")]
    with answering(respond) as url, rig(tmp_path, models=models) as running:
        running.setup.leads_to(int(url.rpartition(":")[2]))
        running.do(running.setup.look_up())
        yield running, paths


def test_each_message_of_a_stream_gets_the_version_of_its_models_alias(aliased: tuple[Rig, list[str]]) -> None:
    rig, paths = aliased
    talk = Talk(rig)
    talk.send(infer_request("echo"), infer_request("slow"), infer_request("echo"))
    assert [talk.receive().infer_response.model_version for _ in range(3)] == ["7"] * 3
    assert len(paths) == 2
    talk.end()


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
STATE = "a=" + "x" * 300
CONTEXT = (("traceparent", PARENT), ("tracestate", STATE))


def trace_headers(running: Rig) -> dict[str, Any]:
    [(_, _, metadata)] = running.stubs[0].requests
    return {name: metadata.get(name) for name in ("traceparent", "tracestate", "other")}


def kept(running: Rig) -> list[dict[str, Any]]:
    tracer = running.proxy.shared.tracer
    assert tracer is not None
    return list(tracer._waiting)


def test_a_sampled_call_has_a_span_between_the_callers_and_the_replicas(tmp_path: Path) -> None:
    rarely = replace(RIG, export_seconds=60)
    with rig(tmp_path, otlp_endpoint="http://127.0.0.1:1", tunables=rarely) as running:
        metadata = running.metadata(*CONTEXT, ("other", "y" * 200))
        infer = method(running.channel(), "ModelInfer")
        infer(infer_request(), metadata=metadata, timeout=5)
        [span] = kept(running)
        assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT[36:52], STATE)
        sent = {"traceparent": f"00-{TRACE}-{span['spanId']}-01", "tracestate": STATE, "other": "y" * 200}
        assert trace_headers(running) == sent
        assert (span["name"], span["status"]) == ("inference.GRPCInferenceService/ModelInfer", {})
        attributes = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
        assert (
            attributes.items()
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
        assert len(kept(running)) == 1, "no span without a grant or without a sampled parent"
