"""A wave of load: callers that come and go, what became of each call, and what there was of replicas meanwhile."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from tidegate_eviction.listing import fetch

from lab.demo.playing import claim
from lab.demo.visitor import BUSY as BUSY_STATUS
from lab.demo.visitor import Reply, Visitor
from lab.tools.running import repeating

from .world import BUSY, CHAT, MODELS, PROXY, RARE, ScaledPlatform

LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Call:
    """One that has ended."""

    ended: float  # Seconds since the wave began.
    reply: Reply


@dataclass(frozen=True)
class Sample:
    """What there was at one time, in seconds since the wave began."""

    at: float
    callers: int
    wanted: dict[str, int]  # Replicas that each workload is to have.
    serving: dict[str, int]  # Those that take calls.
    queue: float  # What KEDA asks Prometheus for: milliseconds, and twice per cent.
    busy: float
    room: float


@dataclass
class Wave:
    """Calls and samples, as they come; `step` is to be called by the main thread, over and over.

    Whoever is told busy comes again when he is told to, as long as it takes.
    """

    platform: ScaledPlatform
    calls: list[Call] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    told_busy: int = 0  # How often callers were, and came again.
    _begun: float = field(default_factory=time.monotonic)
    _callers: int = 0
    _visitors: dict[str, Visitor] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun

    @property
    def lost(self) -> list[Call]:
        """Calls that had no answer of their model in the end."""
        return [call for call in self.calls if call.reply.status != 200]

    def call(self, model: str) -> Reply:
        """Call a model through one of the proxies, and again when that says so."""
        pod = random.choice(self.platform.kubelet.of(PROXY))
        assert pod.proxy is not None
        visitor = self._visitors.setdefault(pod.name, Visitor([pod.proxy.http], self.platform.key))
        begun, tries = self.now, 1
        ask = visitor.chat if model in MODELS[CHAT] else visitor.call
        while (reply := ask(model)).status == BUSY_STATUS and reply.retry_after is not None:
            self.told_busy += 1
            time.sleep(reply.retry_after)
            tries += 1
        reply = replace(reply, seconds=self.now - begun, tries=tries)
        self.calls.append(Call(self.now, reply))
        return reply

    @contextmanager
    def callers(self, number: int, models: Sequence[str], pause: float = 0.0) -> Iterator[None]:
        """Have so many callers call these models, with a pause between two calls, as long as the block lasts."""
        works = [partial(self.call, models[place % len(models)]) for place in range(number)]
        with repeating(*works, pause=pause, meanwhile=self.step):
            self._callers += number
            try:
                yield
            finally:
                self._callers -= number

    def step(self) -> Sample:
        """Look after the pods once, and at what there is."""
        begun = time.monotonic()
        platform = self.platform
        platform.kubelet.look()
        platform.check()
        found = platform.cluster.get("statefulsets,deployments", namespace=platform.kubelet.namespace)
        wanted = {each["metadata"]["name"]: each["spec"].get("replicas", 1) for each in found}
        serving = {name: len(platform.kubelet.of(name)) for name in (BUSY, RARE, CHAT, PROXY)}
        queue, busy, room = (platform.ask(query) or 0.0 for query in platform.queries(BUSY)[:3])
        self.samples.append(Sample(self.now, self._callers, wanted, serving, queue, busy, room))
        time.sleep(max(0.0, LOOK_SECONDS - (time.monotonic() - begun)))
        return self.samples[-1]

    def until(self, what: str, holds: Callable[[Sample], object], seconds: float) -> float:
        """Step until something holds; return after how many seconds it did. NotSoError when it takes too long."""
        begun = self.now
        while not holds(self.step()):
            claim(self.now - begun < seconds, f"{what}: not after {seconds:.0f} s")
        return self.now - begun

    def places(self) -> dict[str, set[str]]:
        """Return which models are in memory at each replica of the busy pool."""
        found = {}
        for pod in self.platform.kubelet.of(BUSY):
            assert pod.policy is not None
            listing = fetch(pod.policy.leases, pod.policy.state)
            found[pod.name] = {each.model for each in listing.models if each.leases and each.state == "resident"}
        return found
