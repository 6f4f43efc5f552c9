"""The scenes: two models, shares of versions, streams, a limit on tokens, a worker that is killed, a rolling update."""

import json
import os
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Any

import openai
from tidegate_contracts.openai import served_as

from lab.tools.running import repeating

from ..playing import Outcome, Scene, claim, scene, until
from ..show import Show
from .figures import FIRSTS, PAIRS, STREAMS, TOKENS, Compared, Figures, Line, measure
from .plane import CHAT, CODE, FAST, NEWER, OF_CODE, OF_FAST, LanguagePlane

SCENES: list[Scene["LanguageStage"]] = []
CALLS = 200
LONG = 600  # Tokens of a stream that is still under way when something happens to it: some four seconds.
NEWEST = served_as(CHAT, 2)
WITHOUT_SECONDS = 14.0
"""For so long the frontend of a worker that was killed is called; it takes some ten seconds until it knows."""
TOKENS_A_MINUTE = 600
RATE_GOAL, FIRST_GOAL = 0.97, 1.1
PAUSE_SECONDS = 0.05
MESSAGES: list[Any] = [{"role": "user", "content": "word1 word2 word3"}]
_CLIENT = f"""\
import openai
client = openai.OpenAI()
for _ in range(5):
    answer = client.chat.completions.create(model="{CHAT}", messages={MESSAGES}, max_tokens=8)
    print(answer.model, answer.choices[0].message.content)
"""


def introduce(plane: LanguagePlane, show: Show) -> None:
    """Print what runs."""
    pools = ", ".join(f"{name} {len(pool.replicas)}" for name, pool in plane.pools.items() if pool.replicas)
    shares = ", ".join(f"version {version} gets {share}" for version, share in plane.shares.items())
    show.say(
        f"This runs on this machine, as lab/demo/llm/inference.yaml is rendered: a proxy, and NVIDIA Dynamo in the "
        f"pools ({pools}: so many replicas). They are the real ones; in place of an engine on a GPU each worker is "
        "Dynamo's own mocker, which draws words at random, each some 6 ms after the other.\n"
        f"Of 100 calls of {CHAT} {shares}; each version has a pool of its own. Callers use OpenAI's own Python client, "
        "unmodified, which does not come again by itself here."
    )


def to_try(plane: LanguagePlane) -> str:
    """Return sentences that end with a colon, each with its command below; the first one sets what others read."""
    url, key, python = f"http://{plane.proxy.http}", plane.key, shlex.quote(sys.executable)
    call = 'curl -s -H "Authorization: Bearer $OPENAI_API_KEY" "$OPENAI_BASE_URL'
    said = json.dumps({"model": CODE, "messages": MESSAGES, "max_tokens": 20, "stream": True})
    commands = {
        "In another terminal, first of all; OpenAI's clients read both":
            f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}",
        "Which models there are for you": f'{call}/models"',
        "An answer, word by word": f"{call}/chat/completions\" -N -H 'Content-Type: application/json' -d '{said}'",
        "OpenAI's own client, whose calls two versions share": f"{python} - <<'END'\n{_CLIENT}END",
        "What the proxy has counted of tokens": f"curl -s http://{plane.proxy.admin}/metrics | grep tokens_total",
    }  # fmt: skip
    return "\n\n".join(f"{sentence}:\n{command}" for sentence, command in commands.items())


@dataclass
class LanguageStage:
    """What every scene has at hand."""

    plane: LanguagePlane
    show: Show
    client: openai.OpenAI = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.plane.client()

    def chat(self, model: str = CHAT, tokens: int = 8, client: openai.OpenAI | None = None, **more: Any) -> Any:
        """Have a model answer in so many tokens; raises openai.OpenAIError."""
        return (client or self.client).chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=tokens, **more
        )

    @contextmanager
    def calling(self) -> Iterator["Answers"]:
        """Call the model over and over, as long as the block lasts, whole answers and streams."""
        tally = Answers()
        with repeating(partial(tally.call, self, False), partial(tally.call, self, True), pause=PAUSE_SECONDS):
            yield tally


@dataclass
class Answers:
    """What callers were answered."""

    calls: int = 0
    failures: list[str] = field(default_factory=list)

    def call(self, stage: LanguageStage, streams: bool) -> None:
        """Call once, and count how that went."""
        self.calls += 1
        try:
            answer = stage.chat(tokens=30, stream=streams)
            words = _words(answer) if streams else answer.choices[0].message.content.split()
        except openai.OpenAIError as error:
            self.failures.append(str(error))
            return
        if len(words) != 30:
            self.failures.append(f"of 30 words {len(words)} came")


def _words(stream: Any) -> list[str]:
    return "".join(event.choices[0].delta.content or "" for event in stream if event.choices).split()


@scene(SCENES, "A call says which model it is for, and goes to a server that has it; a caller sees what it may.")
def two(stage: LanguageStage) -> Outcome:
    """Two models behind one address."""
    listed = [model.id for model in stage.client.models.list()]
    claim({CHAT, CODE} <= set(listed), f"listed are {listed}")
    for model in (CHAT, CODE):
        answer = stage.chat(model)
        used = answer.usage
        claim(used.completion_tokens == 8, f"{model} used {used}")
        stage.show.note(f"{answer.model}: “{answer.choices[0].message.content.strip()}”, {used.total_tokens} tokens")
    told = None
    with suppress(openai.NotFoundError):
        told = stage.chat("nobody")
    claim(told is None, f"a model that there is not answered {told}")
    return Outcome("Both answer; a name that nobody has is 404", "both answer, no other name does")


@scene(SCENES, f"{CALLS} calls of {CHAT}; which version answers, the proxy draws for each.")
def shares(stage: LanguageStage) -> Outcome:
    """A share of 20 to 80."""
    found = Counter(stage.chat(tokens=1).model for _ in range(CALLS))
    names = [served_as(CHAT, version) for version in stage.plane.shares]
    claim(found.keys() == {*names}, f"answered by {dict(found)}")
    share = stage.plane.shares[1] / 100
    strays = 5 * sqrt(CALLS * share * (1 - share))  # standard deviations
    claim(abs(found[names[0]] - CALLS * share) < strays, f"not by chance answered by {dict(found)}")
    said = ", ".join(f"{name} {found[name]}" for name in names)
    return Outcome(f"Of {CALLS} calls: {said}", said)


@scene(SCENES, "Each token is handed on when it is there, and a caller that leaves frees the engine at once.")
def stream(stage: LanguageStage) -> Outcome:
    """A stream."""
    begun, times, text = time.monotonic(), list[float](), ""
    for event in stage.chat(CODE, 100, stream=True):
        times.append(time.monotonic() - begun)
        text += event.choices[0].delta.content or ""
    claim(len(text.split()) == 100, f"of 100 words {len(text.split())} came")
    claim(times[0] < times[-1] / 2, f"the first event came after {times[0]:.2f} s, the last after {times[-1]:.2f} s")
    stage.show.note(" ".join(text.split()[:12]) + " …")
    left = stage.chat(CODE, LONG * 10, stream=True)
    next(iter(left))
    [replica] = stage.plane.pools[OF_CODE].replicas.values()
    claim(replica.in_flight(CODE) == 1, f"{replica.in_flight(CODE)} requests are worked on, and one stream is open")
    left.close()
    freed = until("the engine is free again", lambda: replica.in_flight(CODE) == 0, 5)
    return Outcome(
        f"100 words, the first after {times[0] * 1000:.0f} ms, the last after {times[-1] * 1000:.0f} ms; another one, "
        f"left in the middle, was worked on for {freed * 1000:.0f} ms more",
        f"first word {times[0] * 1000:.0f} ms, last {times[-1] * 1000:.0f} ms",
    )


@scene(
    SCENES,
    f"A caller may use {TOKENS_A_MINUTE} tokens of a model at once, and {TOKENS_A_MINUTE} more a minute. What a call "
    "used is known when it has ended (`usage`): the last one may use more than is left, and the next one is refused.",
)
def limit(stage: LanguageStage) -> Outcome:
    """A limit on tokens."""
    stage.plane.limit(TOKENS_A_MINUTE)
    model, told = CODE, None
    before = stage.plane.count("tokens", model=model)
    begun = time.monotonic()
    while told is None:
        claim(time.monotonic() < begun + 20, "no call was refused")
        try:
            words = _words(stage.chat(model, 100, stream=True))
            claim(len(words) == 100, f"of 100 words {len(words)} came")
        except openai.RateLimitError as error:
            told = error
    used, seconds = stage.plane.count("tokens", model=model) - before, time.monotonic() - begun
    after = float(told.response.headers["retry-after"])
    claim(told.code == "rate_limit_exceeded", f"it was refused as {told.code}")
    claim(used >= TOKENS_A_MINUTE, f"after {used:.0f} tokens it was refused")
    stage.show.note(told.message)
    again = stage.chat(model, client=stage.plane.client(max_retries=5))
    claim(again.usage.completion_tokens == 8, f"then it was answered {again}")
    stage.plane.limit()
    until("the limit is gone", lambda: not _is_limited(stage, model))
    return Outcome(
        f"Refused with 429 after {used:.0f} tokens in {seconds:.0f} s, which bring "
        f"{seconds * TOKENS_A_MINUTE / 60:.0f} more; to come again after {after:.0f} s, "
        "and a client that does is answered",
        f"429 after {used:.0f} tokens",
    )


def _is_limited(stage: LanguageStage, model: str) -> bool:
    try:
        stage.chat(model, 1)
    except openai.RateLimitError:
        return True
    return False


@scene(
    SCENES,
    "Its stream ends with a clear error, for what has begun cannot go on elsewhere. Dynamo's frontend does not know at "
    "once; calls that it cannot serve go to the other replica, and their callers see nothing.",
)
def killed(stage: LanguageStage) -> Outcome:
    """A worker is killed in the middle of a stream."""
    plane, came, told = stage.plane, 0, ""
    while True:  # until it is of the newest version
        answer = stage.chat(tokens=LONG, stream=True)
        if next(iter(answer)).model == NEWEST:
            break
        answer.close()
    name, replica = next((name, each) for name, each in plane.pools[NEWER].replicas.items() if each.in_flight(NEWEST))
    before = plane.count("upstream_errors", how="lost")
    os.kill(replica.workers[NEWEST].pid, signal.SIGKILL)
    begun = time.monotonic()
    try:
        came = len(_words(answer))
    except openai.APIError as error:
        told = error.message
    ended = time.monotonic() - begun
    claim(told, f"the stream ended without an error, after {came} words")
    with stage.calling() as tally:
        time.sleep(max(0.0, begun + WITHOUT_SECONDS - time.monotonic()))
    lost = plane.count("upstream_errors", how="lost") - before
    claim(not tally.failures, f"{len(tally.failures)} of {tally.calls} calls failed: {tally.failures[:1]}")
    claim(lost, f"none of {tally.calls} calls came to {name}")
    replica.start_again(NEWEST)
    back = until(f"{name} has {NEWEST} again", lambda: NEWEST in replica.served(), 60)
    return Outcome(
        f"Its stream ended {ended * 1000:.0f} ms later: “{told}”. Of {tally.calls} calls in {WITHOUT_SECONDS:.0f} s "
        f"none failed; {lost:.0f} of them came to {name} first. It has its model again after {back:.0f} s",
        f"a clear error; {tally.calls} calls afterwards, none failed",
    )


@scene(
    SCENES,
    f"Of {NEWER}, replica after replica leaves its name, ends what is in flight, and is started anew, the last one "
    "first, as a StatefulSet does it. Callers go on meanwhile with whole answers and streams.",
)
def update(stage: LanguageStage) -> Outcome:
    """A rolling update without a failed call."""
    plane = stage.plane
    names = sorted(plane.pools[NEWER].replicas, reverse=True)
    with stage.calling() as tally:
        for name in names:
            plane.stop(NEWER, name)
            started = plane.start(NEWER)
            claim(started == name, f"{started} came in place of {name}")
        time.sleep(1)
    claim(not tally.failures, f"{len(tally.failures)} of {tally.calls} calls failed: {tally.failures[:1]}")
    return Outcome(f"{', '.join(names)}: {tally.calls} calls, none failed", f"{tally.calls} calls, none failed")


@scene(
    SCENES,
    f"By turns, directly and through the proxy: {PAIRS} times {STREAMS} streams of {TOKENS} tokens at once, and "
    f"{FIRSTS} times a call for one token. Each time the two are divided, the proxy's by Dynamo's own; the median of "
    "that says what the proxy costs. What else runs on this machine is in these figures, too.",
)
def cost(stage: LanguageStage) -> Outcome:
    """What the proxy costs."""
    plane = stage.plane
    name = plane.start(OF_FAST)
    found = {}
    fastest = f"as fast as it can ({' '.join(plane.pools[OF_FAST].options)})"
    for model, pool, pace in ((CODE, OF_CODE, "at the pace of a GPU"), (FAST, OF_FAST, fastest)):
        [replica] = plane.pools[pool].replicas.values()
        through = partial(Line, plane.proxy.http_port, model, plane.key)
        until(f"{model} answers", partial(_streams, through))
        found[model] = measure(partial(Line, replica.http_port, model), through)
        stage.show.note(f"{pace}: {_said(found[model])}")
    plane.stop(OF_FAST, name)
    rate, first = found[CODE].rate.ratio, found[CODE].first.ratio
    return Outcome(
        f"Through the proxy, at the pace of a GPU: {rate:.3f} times the tokens a second (goal {RATE_GOAL} or more: "
        f"{_met(rate >= RATE_GOAL)}), first token after {first:.2f} times as long (goal {FIRST_GOAL} or less: "
        f"{_met(first <= FIRST_GOAL)})",
        f"tokens × {rate:.3f} (goal {RATE_GOAL} or more), first token × {first:.2f} (goal {FIRST_GOAL} or less)",
        met=rate >= RATE_GOAL and first <= FIRST_GOAL,
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed in this run"


def _streams(line: Callable[[], Line]) -> bool:
    try:
        return line().stream(1).tokens == 1
    except OSError:
        return False


def _said(found: Figures) -> str:
    return (
        f"{found.rate.direct:,.0f} tokens a second directly, through the proxy {_times(found.rate)}; first token after "
        f"{found.first.direct * 1000:.1f} ms directly, through the proxy {_times(found.first)}"
    )


def _times(found: Compared) -> str:
    return f"{found.ratio:.3f} times that (half of the turns {found.middle[0]:.3f} to {found.middle[1]:.3f})"
