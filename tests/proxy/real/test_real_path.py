"""A proxy that is exposed at a path: through a real nginx, by the rules of the Ingress, what Triton answers comes."""

import http.client
import time
from itertools import pairwise

from ..rigs.pytest_rigs import Exposed
from ..rigs.tables import SERVER
from .test_real_http import INFER, JSON, REQUESTS, ask, get, packed, post

PLAIN = packed({"IN": [1, 2, 3], "DELAY": [0, 300, 300]})


def test_every_call_is_answered_as_triton_does(exposed: Exposed) -> None:
    for name, (method, path, body, headers) in REQUESTS.items():
        direct, _, said = ask(exposed.triton.http, (method, path, body, headers))
        found = (method, exposed.path + path, body, headers | {"x-api-key": exposed.key})
        status, _, answer = ask(exposed.address, found)
        assert (status, answer) == (direct, said), name
    envelope = packed({"inference_server_name": SERVER, "model_name": "add_sub", "payload": {}})
    sent = post(f"{exposed.path}/predict", envelope.replace(b"{}", JSON), {"x-api-key": exposed.key})
    assert ask(exposed.address, sent)[2] == ask(exposed.triton.http, post(INFER, JSON))[2]


def test_health_identity_and_pages_are_below_the_path(exposed: Exposed) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/healthz", "/readyz", "/openapi.yaml"):
        assert ask(exposed.address, get(exposed.path + path))[0] == 200, path
    assert b'"principal":"ci"' in ask(exposed.address, get(f"{exposed.path}/whoami", **{"x-api-key": exposed.key}))[2]


def test_nothing_is_found_beside_the_path(exposed: Exposed) -> None:
    wrong = [INFER, f"{exposed.path}X{INFER}", f"//{exposed.path}{INFER}", f"{exposed.path * 2}{INFER}", exposed.path]
    for path in [*wrong, f"/%69nference{INFER}", f"/x/..{exposed.path}{INFER}", f"{exposed.path}%2f{INFER[1:]}"]:
        assert ask(exposed.address, post(path, JSON, {"x-api-key": exposed.key}))[0] == 404, path


def test_a_stream_comes_event_by_event(exposed: Exposed) -> None:
    asking = http.client.HTTPConnection(exposed.address, timeout=30)
    asking.request("POST", f"{exposed.path}/v2/models/repeat/generate_stream", PLAIN, {"x-api-key": exposed.key})
    answer = asking.getresponse()
    came = [time.monotonic() for line in iter(answer.readline, b"") if line.startswith(b"data: ")]
    asking.close()
    assert len(came) == 3
    assert all(after - before > 0.05 for before, after in pairwise(came))
