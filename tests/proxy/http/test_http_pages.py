import re
from base64 import b64encode
from hashlib import sha256

import pytest

from .running_proxy import MODEL, Reply, RunningProxy, request

pytestmark = pytest.mark.anyio
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ELSEWHERE = re.compile(r"(?:https?:|[\"'(=])//\w")
MODELS = ["/models", f"/models/{MODEL}", "/servers/vision/models", "/models/nothing"]


async def page(here: RunningProxy, path: str) -> Reply:
    reply = await here.ask(request(path, method="GET", key=None, Accept=BROWSER))
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
    return reply


def policy(reply: Reply) -> dict[str, list[str]]:
    directives = (each.split() for each in reply.headers["content-security-policy"].split(";"))
    return {name: sources for name, *sources in directives}


def hashes(text: str, tag: str) -> list[str]:
    found = re.findall(rf"<{tag}>(.+?)</{tag}>", text, re.DOTALL)
    return [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in found]


@pytest.mark.parametrize("path", MODELS)
async def test_a_page_contains_no_model_and_no_other_host_and_writes_data_as_text(
    here: RunningProxy, path: str
) -> None:
    reply = await page(here, path)
    text = reply.body.decode()
    assert not ELSEWHERE.search(text)
    directives = policy(reply)
    closed = "default-src", "base-uri", "form-action", "frame-ancestors"
    assert all(directives[name] == ["'none'"] for name in closed)
    allowed = {source for sources in directives.values() for source in sources if not source.startswith("'sha256-")}
    assert allowed <= {"'none'", "'self'", "data:"}
    assert directives["script-src"] == hashes(text, "script")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert (MODEL in text, "vision" in text) == (False, False)
    assert not re.search("innerHTML|outerHTML|insertAdjacent|document.write|eval|Storage|cookie", text)
    assert directives["style-src"] == hashes(text, "style")
    assert (reply.headers["vary"], reply.headers["cache-control"]) == ("accept", "no-store")


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.5", ""])
async def test_a_client_that_accepts_json_gets_json(here: RunningProxy, accept: str) -> None:
    reply = await here.ask(request("/models", method="GET", Accept=accept))
    assert reply.headers["content-type"] == "application/json"
    assert (await here.ask(request("/models", method="GET", key=None, Accept=accept))).problem == "unauthenticated"
