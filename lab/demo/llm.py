"""`make demo-llm`: language models on a real NVIDIA Dynamo without a GPU, called with OpenAI's client."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import openai
from tidegate_proxy.access.api_keys import new_key

from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.named_proxy import write_names
from lab.local_plane.process import HOST, Parts, Process
from lab.local_plane.proxy import Proxy, proxy
from rollout.render import render
from stacks.validate import read_definition

from .playing import Scene, claim, play, scene, until
from .show import Show
from .tables import write_proxy

DEFINITION = Path(__file__).with_name("llm.yaml")
CHAT, CODE = "chat", "code"
WORDS = 100
LONG = 6000  # Tokens of a stream that its caller closes: about 40 seconds.
MESSAGES: list[Any] = [{"role": "user", "content": "word1 word2 word3"}]
SCENES: list[Scene["LanguagePlane"]] = []


@dataclass
class LanguagePlane(Parts):
    """A proxy and two Dynamos, by the names of their models."""

    root: Path
    key: str
    proxy: Proxy
    dynamos: dict[str, Dynamo]

    @cached_property
    def client(self) -> openai.OpenAI:
        """OpenAI's client, without its retries."""
        return openai.OpenAI(base_url=f"http://{self.proxy.http}/v1", api_key=self.key, max_retries=0, timeout=30)

    def chat(self, model: str, tokens: int = 8, **more: Any) -> Any:
        """Request a response of this many tokens. Raises openai.OpenAIError."""
        return self.client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=tokens, **more)

    @property
    def parts(self) -> dict[str, Process]:
        found = {"proxy": self.proxy.process}
        for model, made in self.dynamos.items():
            found |= {f"{model} frontend": made.process, f"{model} worker": made.workers[model]}
        return found


@contextmanager
def language_plane(root: Path) -> Iterator[LanguagePlane]:
    """Run the definition's proxy and models until the block ends. Raises CannotBeHadError and ProcessError."""
    definition = read_definition(DEFINITION)
    (stack,) = definition.stacks
    key, names = new_key(), root / "names" / "pools.json"
    names.parent.mkdir(parents=True)
    table = write_proxy(root / "proxy", render(stack, definition).objects, key)
    hosts = {server.name: server.pools[0].host for server in table.servers}
    with ExitStack() as running:
        dynamos = {model: running.enter_context(dynamo(root / model, [model])) for model in (CHAT, CODE)}
        write_names(names, {hosts[model]: [(HOST, made.http_port)] for model, made in dynamos.items()})
        made = running.enter_context(proxy(root / "proxy", settings={"api_keys": "true"}, names=names))
        yield LanguagePlane(root, key, made, dynamos)


def perform(plane: LanguagePlane, show: Show) -> None:
    """Print what runs, and play all scenes."""
    show.print(
        "Running lab/demo/llm.yaml on this machine: a proxy, and one NVIDIA Dynamo for each of two models. Instead of "
        "an engine on a GPU, each worker is Dynamo's mocker, which generates a random word every 6 ms."
    )
    play(plane, show, SCENES, plane.check)


@scene(SCENES, "The proxy sends each call to the model's server, and lists the models that the caller may call.")
def _two_models(plane: LanguagePlane) -> str:
    """Call two models at one address."""
    listed = {model.id for model in plane.client.models.list()}
    claim({CHAT, CODE} <= listed, f"the proxy lists only {sorted(listed)}")
    answers = []
    for model in (CHAT, CODE):
        answer = plane.chat(model)
        claim(answer.usage.completion_tokens == 8, f"{model} used {answer.usage}")
        answers.append(f"{answer.model} answers “{answer.choices[0].message.content.strip()}”")
    unknown = None
    with suppress(openai.NotFoundError):
        unknown = plane.chat("unknown")
    claim(unknown is None, f"the unknown model answered {unknown}")
    return f"{', '.join(answers)}. A call of an unknown model gets 404"


@scene(SCENES, "The proxy forwards each token immediately. When a caller closes the stream, the engine stops.")
def _stream(plane: LanguagePlane) -> str:
    """Stream a response."""
    begun, times, text = time.monotonic(), list[float](), ""
    for event in plane.chat(CODE, WORDS, stream=True):
        times.append(time.monotonic() - begun)
        text += event.choices[0].delta.content or ""
    claim(len(text.split()) == WORDS, f"{len(text.split())} of {WORDS} words arrived")
    claim(times[0] < times[-1] / 2, f"the first event came after {times[0]:.2f} s, the last after {times[-1]:.2f} s")
    left = plane.chat(CODE, LONG, stream=True)
    next(iter(left))
    engine = plane.dynamos[CODE]
    claim(engine.in_flight(CODE) == 1, f"the engine works on {engine.in_flight(CODE)} requests, with one open stream")
    left.close()
    freed = until("the engine stops", lambda: engine.in_flight(CODE) == 0, 5)
    return (
        f"“{' '.join(text.split()[:6])} …”: {WORDS} words, the first after {times[0] * 1000:.0f} ms, the last after "
        f"{times[-1] * 1000:.0f} ms. The caller closed another stream. The engine stopped within "
        f"{freed * 1000:.0f} ms"
    )
