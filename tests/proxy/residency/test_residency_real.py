"""The errors of a real Triton for models that it has not loaded, by which the proxy knows that it lost one."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import numpy
import pytest
import tritonclient.grpc as client
from tidegate_proxy.triton.kind import LOST, LOST_STATUSES
from tritonclient.utils import InferenceServerException

from lab.local_plane.triton import Triton, triton

from ..rigs.pytest_rigs import not_run
from ..rigs.repository import write

MODEL = "versions"
BODY = json.dumps({"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


@pytest.fixture(scope="module")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    folder = tmp_path_factory.mktemp("triton")
    options = ["--model-control-mode=explicit", "--strict-readiness=false"]
    with not_run("A REAL TRITON"), triton(folder, write(folder / "models"), options=options) as server:
        yield server


def over_http(server: Triton, version: str = "") -> tuple[int, bytes]:
    path = f"http://{server.http}/v2/models/{MODEL}{version}/infer"
    try:
        with urllib.request.urlopen(urllib.request.Request(path, BODY), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def over_grpc(server: Triton, version: str = "") -> tuple[str, bytes]:
    given = client.InferInput("INPUT", [1], "INT32")
    given.set_data_from_numpy(numpy.array([7], numpy.int32))
    with client.InferenceServerClient(server.grpc) as calls:
        try:
            calls.infer(MODEL, [given], model_version=version)
        except InferenceServerException as error:
            return error.status() or "", (error.message() or "").encode()
    return "", b""


def is_lost(server: Triton, version: str = "") -> bool:
    """Return whether the proxy would know it, over HTTP and over gRPC."""
    status, body = over_http(server, f"/versions/{version}" if version else "")
    code, message = over_grpc(server, version)
    found = bool(LOST.search(body)), bool(LOST.search(message))
    assert found[0] == found[1], (body, message)
    assert not found[0] or (status in LOST_STATUSES and code in ("StatusCode.NOT_FOUND", "StatusCode.UNAVAILABLE"))
    return found[0]


def test_an_unloaded_model_differs_from_a_version_that_never_existed(explicit: Triton) -> None:
    assert is_lost(explicit)
    assert is_lost(explicit, "1")
    with client.InferenceServerClient(explicit.grpc) as control:
        control.load_model(MODEL)
        assert over_http(explicit)[0] == 200
        assert not is_lost(explicit, "9")
        control.unload_model(MODEL)
        for _ in range(100):
            if not control.is_model_ready(MODEL):
                break
    assert is_lost(explicit)
    assert is_lost(explicit, "1")
