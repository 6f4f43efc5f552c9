"""OpenAI's own client, the proxy, the eviction policy, and two models of which one has room at a time.

All but vLLM itself is real: of that there is a stand-in, whose memory is really taken and given back.
"""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam
from tidegate_contracts import routing
from tidegate_contracts.eviction import EvictionSettings
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.credentials import lease_token
from lab.local_plane.process import Process
from lab.local_plane.proxy import Proxy, proxy, write_tables
from tests.policies.eviction.openai.plane import Container, container

from ..rigs.tables import write_key
from .tables import SERVER, access, model, table

MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "word1"}]
ACCESS = access(("owner", ["*"], ["infer", "inspect"]))


@dataclass(frozen=True)
class Place:
    """A proxy before a slice that two models share."""

    container: Container
    proxy: Proxy
    key: str
    settings: EvictionSettings
    policy: Process
    lease_port: int

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"max_retries": 0, "timeout": 30} | options
        return openai.OpenAI(base_url=f"http://{self.proxy.http}/v1", api_key=self.key, **options)

    def chat(self, name: str, tokens: int = 3, **options: Any) -> str | None:
        answer = self.client(**options).chat.completions.create(model=name, messages=MESSAGES, max_tokens=tokens)
        return answer.choices[0].message.content

    def states(self) -> dict[str, str]:
        headers = {"authorization": f"Bearer {lease_token('proxy')}"}
        asked = Request(f"http://{self.container.host}:{self.lease_port}/v1/models", headers=headers)
        with urlopen(asked, timeout=10) as answer:
            return {each["model"]: each["state"] for each in json.load(answer)["models"]}


@contextmanager
def place(folder: Path, **changes: Any) -> Iterator[Place]:
    here = container(folder / "engine", "left", "right")
    pool = {"name": "main", "host": here.host, "http_port": 8000, "live_path": "/health", "loading": "on-demand"}
    key = new_key()
    settings = here.settings("left", "right", **changes)
    with here.policy(settings) as (policy, lease_port), here.running():
        server = routing.Server(name=SERVER, kind="openai", pools=(routing.Pool(**pool, lease_port=lease_port),))
        (folder / "proxy").mkdir()
        write_tables(folder / "proxy", table((model("left"), model("right")), server), ACCESS)
        write_key(folder / "proxy", key, "owner")
        with proxy(folder / "proxy", settings={"api_keys": "true"}) as running:
            yield Place(here, running, key, settings, policy, lease_port)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("sleep"), wait_seconds=25) as made:
        yield made


def test_two_models_that_fit_once_only_answer_their_callers_by_turns(here: Place) -> None:
    for _ in range(2):
        assert here.chat("left") == here.chat("right") == "word0 word1 word2 "
    for name in ("left", "right"):
        calls = here.container.calls(name)
        assert calls.count("start") == 1
        assert "sleep 1 wait" in calls
        assert "wake weights kv_cache" in calls


def test_what_the_engine_itself_does_not_know_is_told_as_it_says(here: Place) -> None:
    for _ in range(2):
        with pytest.raises(openai.NotFoundError):
            here.client().embeddings.create(model="left", input="word1")
    assert here.chat("left") == "word0 word1 word2 "


def test_callers_of_both_at_once_all_have_their_answers(here: Place) -> None:
    """And no model was called asleep, nor did one find the device full."""
    names = ["left", "right"] * 6
    with ThreadPoolExecutor(len(names)) as callers:
        answers = list(callers.map(lambda name: here.chat(name, 5, max_retries=20), names))
    assert answers == ["word0 word1 word2 word3 word4 "] * len(names)
    for name in ("left", "right"):
        assert not {"called asleep", "asleep in a stream", "out of memory"} & {*here.container.calls(name)}


def test_a_stream_keeps_its_model_awake_and_the_other_waits_for_its_end(here: Place) -> None:
    """Also where the policy is killed meanwhile, and another one takes its place."""
    tokens, times = 250, dict[str, float]()  # some five seconds: more than two leases
    begun = threading.Event()

    def stream() -> str:
        text = ""
        asked: Any = {"model": "left", "messages": MESSAGES, "max_tokens": tokens, "stream": True}
        for event in here.client().chat.completions.create(**asked):
            text += event.choices[0].delta.content or ""
            begun.set()
        times["streamed"] = time.monotonic()
        return text

    def other() -> str | None:
        answer = here.chat("right", max_retries=20)
        times["answered"] = time.monotonic()
        return answer

    def both() -> None:
        begun.clear()
        with ThreadPoolExecutor(2) as callers:
            text = callers.submit(stream)
            assert begun.wait(30)
            answer = callers.submit(other)
            assert text.result() == "".join(f"word{number} " for number in range(tokens))
            assert answer.result() == "word0 word1 word2 "
        assert times["streamed"] < times["answered"]
        assert "asleep in a stream" not in here.container.calls("left")

    both()
    here.chat("left", max_retries=20)
    here.policy.popen.kill()
    here.policy.popen.wait()
    with here.container.policy(here.settings, here.lease_port):
        assert here.chat("left", max_retries=20)
        both()


def test_who_waits_too_long_is_told_busy_and_when_to_come_again(tmp_path: Path) -> None:
    with place(tmp_path, wait_seconds=1, idle_seconds=60) as here:
        here.container.fault("left", seconds=3)
        with pytest.raises(openai.InternalServerError) as refused:  # which starts for longer than that
            here.chat("left")
        assert (refused.value.status_code, refused.value.code) == (503, "busy")
        assert here.chat("left", max_retries=60)
        with pytest.raises(openai.InternalServerError) as refused:
            here.chat("right")
        assert refused.value.status_code == 503
        assert 30 < float(refused.value.response.headers["retry-after"]) <= 80  # once `left` was idle for a minute
        assert refused.value.code == "busy"
        assert here.chat("left") == "word0 word1 word2 "


def test_a_process_that_dies_is_started_anew_for_the_next_caller(tmp_path: Path) -> None:
    with place(tmp_path, wait_seconds=25) as here:
        assert here.chat("left")
        here.container.fault("left", sleep1="die", sleep2="die")
        assert here.chat("right", max_retries=20)  # `left` dies as it is put to sleep: its room is free all the same
        here.container.fault("left", sleep1="", sleep2="")
        assert here.chat("left", max_retries=20) == "word0 word1 word2 "
        assert here.container.calls("left").count("start") == 2
        assert here.states() == {"left": "resident", "right": "cold"}
