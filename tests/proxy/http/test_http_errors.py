import json
import logging
from pathlib import Path

import pytest
from tidegate_proxy.http.request import MOST_ERROR
from tidegate_service.reasons import MOST

from .running_proxy import MODEL, RunningProxy, request, served
from .upstream import Act, head, raw

pytestmark = pytest.mark.anyio
RAISED = "Failed to process the request(s) for model instance 'm_0', message: ValueError: no"
BODY = json.dumps({"error": f"{RAISED} in /models/m/1/model.py\n\nAt:\n  /models/m/1/model.py(7): execute\n"}).encode()
JSON = b"Content-Type: application/json"
BAD = b"500 Internal Server Error"


def failing(body: bytes, *headers: bytes, chunked: bool = False) -> Act:
    half = len(body) // 2
    if chunked:
        parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:]) if part]
        return raw(head(JSON, b"Transfer-Encoding: chunked", status=BAD), *parts, b"0\r\n\r\n", pause=0.01)
    start = head(JSON, b"Content-Length: %d" % len(body), *headers, status=BAD)
    return raw(start, body[:half], body[half:], pause=0.01)


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_error_comes_as_the_server_wrote_it_and_the_log_has_no_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, chunked: bool
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    async with served(tmp_path, failing(BODY, chunked=chunked)) as here:
        envelope = {"inference_server_name": "vision", "model_name": MODEL, "payload": {"inputs": []}}
        for data in (request(), request("/predict", json.dumps(envelope).encode())):
            reply = await here.ask(data)
            assert (reply.status, reply.body) == (500, BODY)
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-request-id"]
    lines = [vars(record)["data"] for record in caplog.records]
    assert [(line["why"], line["pool"], line["server"], line["model"]) for line in lines] == [
        (f"{RAISED} in model.py"[:MOST], "main", "vision", MODEL)
    ] * 2
    assert lines[0]["replica"]
    assert not {"problem", "reason"} & lines[0].keys()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("body", [b"", b"no JSON", b"{" + b"y" * 2 * MOST_ERROR, b"y" * 200 * MOST_ERROR], ids=len)
async def test_an_error_of_any_length_keeps_the_connection(tmp_path: Path, body: bytes, chunked: bool) -> None:
    async with served(tmp_path, failing(body, chunked=chunked)) as here, here.caller() as caller:
        for _ in range(2):
            await caller.send(request())
            reply = await caller.reply()
            assert (reply.status, reply.body) == (500, body)


async def test_errors_about_a_server_come_as_it_wrote_them(here: RunningProxy) -> None:
    here.replica.act = failing(BODY)
    for path in ("/v2", f"/v2/models/{MODEL}/config"):
        reply = await here.ask(request(path, method="GET"))
        assert (reply.status, reply.body) == (500, BODY), path
