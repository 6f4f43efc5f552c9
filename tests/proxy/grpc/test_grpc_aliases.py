"""Over gRPC, too, a model's alias decides on its version as the model's own configuration says."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET
from typing import Any

import pytest
from tidegate_contracts import routing

from .harness import HOST, Rig, infer_request, method, rig
from .test_grpc_streams import Talk


class Configuration(ThreadingHTTPServer):
    """What a replica tells of its models over HTTP."""

    parameters: dict[str, Any]
    asked = 0


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Configuration)
        self.server.asked += 1
        body = json.dumps({"parameters": self.server.parameters}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def aliased(tmp_path: Path) -> Iterator[tuple[Rig, Configuration]]:
    served = Configuration((HOST, 0), Answer)
    served.parameters = {"tidegate.alias.champion": {"string_value": "7"}}
    threading.Thread(target=served.serve_forever, daemon=True).start()
    models = [routing.Model(name=name, server="main", pool="one", alias="champion") for name in ("echo", "slow")]
    with rig(tmp_path, models=models) as running:
        running.addresses[:] = [(AF_INET, (HOST, served.server_address[1]))]
        pool = next(pool for pool in running.proxy.config.routes.pools.values() if pool.server == "main")
        running.do(pool.refresh())
        yield running, served
    served.shutdown()
    served.server_close()


def test_calls_get_the_version_that_the_alias_stands_for(aliased: tuple[Rig, Configuration]) -> None:
    rig, served = aliased
    infer = method(rig.channel(), "ModelInfer")
    calls = [infer.future(infer_request(), metadata=rig.metadata()) for _ in range(10)]
    assert {call.result().model_version for call in calls} == {"7"}
    assert {dict(call.initial_metadata())["tidegate-model-version"] for call in calls} == {"7"}
    assert served.asked == 1
    assert infer(infer_request(model_version="2"), metadata=rig.metadata()).model_version == "2"


def test_each_message_of_a_stream_gets_the_version_of_its_models_alias(aliased: tuple[Rig, Configuration]) -> None:
    rig, served = aliased
    talk = Talk(rig)
    talk.say(infer_request("echo"), infer_request("slow"), infer_request("echo"))
    assert [talk.hear().infer_response.model_version for _ in range(3)] == ["7"] * 3
    assert served.asked == 2
    talk.end()
