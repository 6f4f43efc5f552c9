"""OpenAI's own Python client, the proxy as a process, and a real Dynamo whose engine needs no GPU."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionUserMessageParam
from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.process import HOST
from lab.local_plane.proxy import Proxy, proxy, write_tables

from ..grpc.harness import until
from ..rigs.pytest_rigs import not_run
from ..rigs.tables import write_key
from .tables import access, model, openai_server, table

MODELS = (model("chat", {1: 20, 2: 80}), model("plain"), model("gone"))
MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "word1 word2"}]
PAGE = (Path(__file__).resolve().parents[3] / "docs/proxy-api.md").read_text("utf-8")
TOKENS = 300  # Words of a long response, which takes about two seconds.
ACCESS = access(
    ("owner", ["*"], ["infer", "inspect"]),
    ("reader", ["chat", "plain"], ["infer", "inspect"]),
    ("guest", ["plain"], ["inspect"]),
)


@dataclass(frozen=True)
class Place:
    dynamo: Dynamo
    proxy: Proxy
    keys: dict[str, str]

    def client(self, who: str = "owner", **options: Any) -> openai.OpenAI:
        options = {"max_retries": 0, "timeout": 20} | options
        return openai.OpenAI(base_url=f"http://{self.proxy.http}/v1", api_key=self.keys[who], **options)


@contextmanager
def place(
    folder: Path, server: Dynamo, allowed: routing.AccessTable = ACCESS, models: Sequence[routing.Model] = MODELS
) -> Iterator[Place]:
    folder.mkdir()
    write_tables(folder, table(models, openai_server(host=HOST, port=server.http_port)), allowed)
    keys = {who: new_key() for who in ("owner", "reader", "guest")}
    for who, key in keys.items():
        write_key(folder, key, who)
    with proxy(folder, settings={"api_keys": "true"}) as running:
        yield Place(server, running, keys)


@pytest.mark.parametrize("mebibytes", [1, 16, 17, 31.9])
def test_a_request_of_every_size_up_to_the_documented_limit_is_answered(here: Place, mebibytes: float) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * int(mebibytes * 2**20)}}
    content: Any = [{"type": "text", "text": "word1"}, picture]
    client = here.client(timeout=120)
    for each in (content, "word1"):  # and the worker is still there afterwards
        answer = client.chat.completions.create(
            model="plain", messages=[{"role": "user", "content": each}], max_tokens=2
        )
        assert answer.usage is not None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dynamo]:
    with not_run("A REAL DYNAMO"), dynamo(tmp_path_factory.mktemp("dynamo"), ["chat-v1", "chat-v2", "plain"]) as made:
        yield made


@pytest.fixture(scope="module")
def here(server: Dynamo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("front") / "proxy", server) as made:
        yield made


def test_a_chat_a_completion_a_response_and_tools_are_answered(here: Place) -> None:
    client = here.client()
    chat = client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=5)
    assert chat.choices[0].message.content
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 5
    assert chat._request_id
    assert client.completions.create(model="plain", prompt="word1", max_tokens=5).choices[0].text
    assert client.responses.create(model="plain", input="word1", max_output_tokens=16).output_text
    parameters: dict[str, object] = {"type": "object", "properties": {"model": {"type": "string"}}}
    tool: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    answer = client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=5, tools=[tool])
    assert answer.model == "plain"
    with pytest.raises(openai.NotFoundError, match="Model not found"):  # the engine's own: it makes no embeddings
        client.embeddings.create(model="plain", input="word1")


def test_events_come_while_the_next_are_made(here: Place) -> None:
    number, text = 0, ""
    stream = here.client().chat.completions.create(model="plain", messages=MESSAGES, max_tokens=TOKENS, stream=True)
    for event in stream:
        number += 1
        text += event.choices[0].delta.content or ""
        if number == 1:
            assert here.dynamo.in_flight("plain") == 1
    assert number >= TOKENS
    assert len(text.split()) == TOKENS


def test_errors_have_the_classes_of_the_client(here: Place) -> None:
    def called(client: openai.OpenAI, name: str, **more: Any) -> None:
        client.chat.completions.create(model=name, messages=MESSAGES, max_tokens=5000, **more)

    with pytest.raises(openai.NotFoundError) as unknown:
        called(here.client(), "nowhere")
    assert (unknown.value.code, unknown.value.type) == ("model_not_found", "invalid_request_error")
    with pytest.raises(openai.InternalServerError) as unserved:  # it is in the table, but the engine does not have it
        called(here.client(), "gone")
    assert (unserved.value.status_code, unserved.value.code) == (503, "busy")
    assert unserved.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.PermissionDeniedError, match="not infer"):
        called(here.client("guest"), "plain")
    with pytest.raises(openai.NotFoundError):
        called(here.client("guest"), "chat")
    with pytest.raises(openai.AuthenticationError, match="Unknown credential"):
        called(openai.OpenAI(base_url=f"http://{here.proxy.http}/v1", api_key="unknown", max_retries=0), "plain")
    with pytest.raises(openai.BadRequestError, match="Temperature must be between 0 and 2"):
        called(here.client(), "plain", temperature=1e9)
    with pytest.raises(openai.APITimeoutError):
        called(here.client(timeout=0.3), "plain")
    with pytest.raises(openai.InternalServerError) as late:
        called(here.client(default_headers={"request-timeout": "0.3"}), "plain")
    assert (late.value.status_code, late.value.code) == (504, "deadline-exceeded")
    until(lambda: here.dynamo.in_flight("plain") == 0, 10)  # half a minute's worth of tokens


def test_the_example_has_the_output_of_the_page(here: Place) -> None:
    section = PAGE.split("\n## OpenAI's API\n")[1].split("\n## ")[0]
    [(program, shown)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
    variables = os.environ | {"TIDEGATE_URL": f"http://{here.proxy.http}", "TIDEGATE_API_KEY": here.keys["reader"]}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr


@contextmanager
def alone(root: Path) -> Iterator[tuple[Dynamo, Place]]:
    with (
        not_run("A REAL DYNAMO"),
        dynamo(root / "dynamo", ["plain"]) as server,
        place(root / "proxy", server) as here,
    ):
        yield server, here


@pytest.mark.thorough
def test_a_killed_worker_ends_its_streams_with_an_error_and_is_noticed_afterwards(tmp_path: Path) -> None:
    with alone(tmp_path) as (server, here):
        ready_path = "/v1/models/plain"
        assert server.get(ready_path)[0] == 200
        client = here.client()
        stream = client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=5000, stream=True)
        next(iter(stream))
        os.kill(server.workers["plain"].pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="Internal server error"):
            list(stream)
        with pytest.raises(openai.InternalServerError) as caught:  # by the engine or the proxy
            client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=1)
        assert caught.value.status_code == 503
        until(lambda: server.get(ready_path)[0] == 404, 20)
        assert server.get("/health")[0] == 200, "which does not depend on workers"
        with pytest.raises(openai.InternalServerError) as busy:
            client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=1)
        assert (busy.value.status_code, busy.value.code) == (503, "busy")
        server.start_again("plain")
        until(lambda: "plain" in server.served(), 60)
        assert client.chat.completions.create(model="plain", messages=MESSAGES, max_tokens=1).choices


@pytest.mark.thorough
def test_a_frontend_that_is_killed_cuts_its_streams_and_is_away_afterwards(tmp_path: Path) -> None:
    with alone(tmp_path) as (server, here):
        asking = http.client.HTTPConnection(here.proxy.http, timeout=20)
        headers = {"x-api-key": here.keys["owner"], "content-type": "application/json"}
        message = {"model": "plain", "messages": MESSAGES, "max_tokens": 5000, "stream": True}
        asking.request("POST", "/v1/chat/completions", json.dumps(message), headers)
        answer = asking.getresponse()
        assert answer.read(5) == b"data:"
        os.kill(server.process.pid, signal.SIGKILL)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
        asking.close()
        server.process.popen.wait(10)  # before that its port may accept a connection
        with pytest.raises(openai.InternalServerError) as busy:
            here.client().chat.completions.create(model="plain", messages=MESSAGES, max_tokens=1)
        assert busy.value.code == "busy"
        assert int(busy.value.response.headers["retry-after"]) >= 1
