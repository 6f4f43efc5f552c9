import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from tidegate_contracts import routing
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.dynamo import dynamo
from lab.local_plane.process import HOST
from lab.local_plane.proxy import proxy, write_tables

from ..grpc.harness import until
from ..rigs.pytest_rigs import not_run
from ..rigs.tables import write_key
from .tables import SERVER, access, model, table

pytestmark = pytest.mark.thorough
BEGIN = [model("chat", {3: 100})]
READY = [model("chat", {3: 100}), model("chat", {4: 0}, pool="green")]
SHARED = [model("chat", {3: 80}), model("chat", {4: 20}, pool="green")]
OVER = [model("chat", {3: 0}), model("chat", {4: 100}, pool="green")]
END = [model("chat", {4: 100}, pool="green")]


@contextmanager
def calling(client: openai.OpenAI) -> Iterator[Counter[str]]:
    """Complete responses and streams while the block lasts: the model of each, and the number of failures."""
    ended, answered = threading.Event(), Counter[str]()

    def call(*, stream: bool) -> None:
        while not ended.is_set():
            try:
                reply = client.chat.completions.with_raw_response.create(
                    model="chat", messages=[{"role": "user", "content": "word1"}], max_tokens=5, stream=stream
                )
                if stream:
                    assert list(reply.parse())
                answered[reply.headers["tidegate-model-version"]] += 1
            except openai.OpenAIError as error:
                answered[f"failed: {error}"] += 1

    callers = [threading.Thread(target=call, kwargs={"stream": stream}) for stream in (False, True)]
    for each in callers:
        each.start()
    try:
        yield answered
    finally:
        ended.set()
        for each in callers:
            each.join()


def test_no_call_fails_while_a_version_takes_over(tmp_path: Path) -> None:
    with (
        not_run("A REAL DYNAMO"),
        dynamo(tmp_path / "blue", ["chat-v3"]) as blue,
        dynamo(tmp_path / "green", ["chat-v4"]) as green,
    ):
        pools = tuple(
            routing.Pool(name=name, host=HOST, http_port=at.http_port, loading="preload")
            for name, at in (("main", blue), ("green", green))
        )
        server, root, key = routing.Server(name=SERVER, kind="openai", pools=pools), tmp_path / "proxy", new_key()
        root.mkdir()
        allowed = access(("me", ["chat"], ["infer"]))
        write_tables(root, table(BEGIN, server), allowed)
        write_key(root, key, "me")
        with proxy(root, settings={"api_keys": "true"}) as running:
            client = openai.OpenAI(base_url=f"http://{running.http}/v1", api_key=key, max_retries=0, timeout=30)
            with calling(client) as answered:
                until(lambda: answered["3"] > 10, 60)
                write_tables(root, table(READY, server), allowed)
                tried = client.chat.completions
                until(lambda: _answers(tried, "chat-v4"), 60)  # which has no traffic yet
                assert answered["4"] == 0
                write_tables(root, table(SHARED, server), allowed)
                until(lambda: answered["4"] > 10, 60)
                assert answered["3"] > answered["4"]
                write_tables(root, table(OVER, server), allowed)
                write_tables(root, table(END, server), allowed)
                until(lambda: _only(answered, "4"), 60)
    assert answered.keys() == {"3", "4"}, answered


def _answers(chats: openai.resources.chat.Completions, name: str) -> bool:
    try:
        answer = chats.create(model=name, messages=[{"role": "user", "content": "word1"}], max_tokens=1)
    except openai.NotFoundError:
        return False
    return answer.model == name


def _only(answered: Counter[str], version: str) -> bool:
    """Return whether so many calls got this version that no other one can have a share."""
    before = Counter(answered)
    until(lambda: answered.total() > before.total() + 20, 60)
    return (answered - before).keys() == {version}
