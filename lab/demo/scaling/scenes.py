"""What is shown of scaling, scene after scene; each checks what it claims."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tidegate_contracts.placement import ranked

from lab.demo.playing import Outcome, Scene, claim, scene
from lab.demo.show import Show
from lab.demo.visitor import Reply

from .picture import draw
from .wave import Wave
from .world import BUSY, CHAT, MODELS, PROXY, RARE, ScaledPlatform

QUIET_CALLERS, QUIET_PAUSE = 4, 0.5
WAVE_CALLERS = 24
QUIET = MODELS[BUSY][:4]
MOST_SECONDS = 300.0
CHATS = 8  # Streams at a time; an engine has room for four.
FULL_SECONDS = 180.0  # Longer than the two minutes of the mean and `downSeconds`.
BLIND_SECONDS, SEEING_SECONDS = 60, 60  # Without Prometheus, more than `downSeconds`; and with one that is new.
ANEW_SECONDS = 10  # Between two readings of the new one: for that long it knows no rate.
MOST_QUEUED, MOST_BUSY = 50, 5  # `queueMilliseconds` and `busyPercent` of the pool.
SCENES: list[Scene["ScalingStage"]] = []


@dataclass
class ScalingStage:
    """What every scene has at hand; some callers are there all the time."""

    platform: ScaledPlatform
    show: Show
    picture: Path
    wave: Wave = field(init=False)
    load: ExitStack = field(default_factory=ExitStack)  # The callers of the wave.

    def __post_init__(self) -> None:
        """Begin the wave, with nobody yet."""
        self.wave = Wave(self.platform)

    def at_rank(self) -> int:
        """Return how many models are called at the replica where they rank first."""
        pods = {pod.name: f"{pod.host}:{pod.triton.http_port}" for pod in self.platform.kubelet.of(BUSY) if pod.triton}
        first = {model: ranked(model, pods.values())[0] for model in MODELS[BUSY]}
        return sum(first[model] == pods[name] for name, models in self.wave.places().items() for model in models)


def _pass(wave: Wave, seconds: float) -> None:
    end = wave.now + seconds
    while wave.now < end:
        wave.step()


@contextmanager
def staged(platform: ScaledPlatform, show: Show, picture: Path) -> Iterator[ScalingStage]:
    """Have callers call as long as the block lasts, once there is something to call."""
    made = ScalingStage(platform, show, picture)
    wave = made.wave
    wave.until("there are pods", lambda now: now.serving[BUSY] and now.serving[PROXY], MOST_SECONDS)
    with wave.callers(QUIET_CALLERS, QUIET, QUIET_PAUSE), made.load:
        yield made


@scene(
    SCENES, "KEDA asks a Prometheus that scrapes the real Tritons and proxies; what is rendered is applied as it is."
)
def _quiet(stage: ScalingStage) -> Outcome:
    """All is quiet: one replica."""
    stage.wave.until("KEDA is ready", lambda _: stage.platform.readiness(BUSY) == "True", MOST_SECONDS)
    begun = stage.wave.now
    now = stage.wave.step()
    while stage.wave.now < begun + 20:
        now = stage.wave.step()
        claim(now.wanted[BUSY] == 1, f"{BUSY} is to have {now.wanted[BUSY]} replicas, with next to no load")
    return Outcome(f"Requests wait {now.queue:.1f} ms in the queue, and {now.busy:.0f} % are told busy.", "1 replica")


@scene(
    SCENES, "Queue time and want of room raise the pool from 1 to 3, one step after the other; CPU raises the proxy."
)
def _load(stage: ScalingStage) -> Outcome:
    """A wave of load."""
    wave = stage.wave
    stage.load.enter_context(wave.callers(WAVE_CALLERS, MODELS[BUSY]))
    wanted = wave.until("a second replica is wanted", lambda now: now.wanted[BUSY] == 2, MOST_SECONDS)
    second = wanted + wave.until("it serves", lambda now: now.serving[BUSY] == 2, MOST_SECONDS)
    third = second + wave.until("a third one serves", lambda now: now.serving[BUSY] == 3, MOST_SECONDS)
    proxies = third + wave.until("a second proxy serves", lambda now: now.serving[PROXY] > 1, MOST_SECONDS)
    claim(wave.told_busy, "nobody was told busy, though not all models fit one replica")
    text = (
        f"After {wanted:.0f} s of load KEDA wanted a second replica, which served at {second:.0f} s, and the third one "
        f"at {third:.0f} s; a second proxy was there at {proxies:.0f} s. {wave.told_busy} times callers were told busy."
    )
    return Outcome(text, f"3 replicas in {third:.0f} s")


@scene(SCENES, "Each replica that comes gets the models that rank first there, 1/N of them on average, if it has room.")
def _placement(stage: ScalingStage) -> Outcome:
    """Models move to the replicas that have come."""
    most = len(MODELS[BUSY]) - 1  # Where chance puts more at one than it has room for, one stays elsewhere.
    seconds = stage.wave.until("models are where they rank first", lambda _: stage.at_rank() >= most, 120)
    places = ", ".join(f"{name} {len(models)}" for name, models in sorted(stage.wave.places().items()))
    begun = stage.wave.now
    _pass(stage.wave, 30)
    recent = [call.reply.seconds for call in stage.wave.calls if call.ended > begun]
    text = f"{seconds:.0f} s later models in use are at: {places}. {len(recent) / 30:.0f} calls a second are answered."
    return Outcome(text, places)


@scene(
    SCENES, "One replica after the other goes, once the last two minutes want fewer for long enough. No call is lost."
)
def _ebb(stage: ScalingStage) -> Outcome:
    """The wave is over."""
    wave = stage.wave
    stage.load.close()
    first = wave.until("one goes", lambda now: now.wanted[BUSY] == 2, MOST_SECONDS)
    last = first + wave.until("another goes", lambda now: now.wanted[BUSY] == 1, MOST_SECONDS)
    _nothing_is_lost(stage)
    text = (
        f"One went {first:.0f} s after the wave, another at {last:.0f} s. Of {len(wave.calls):,} calls none was lost."
    )
    return Outcome(text, f"1 replica after {last:.0f} s, nothing lost")


def _nothing_is_lost(stage: ScalingStage) -> None:
    """Wait until what leaves has left, and claim that every call had its answer."""
    wave, kubelet = stage.wave, stage.platform.kubelet
    wave.until(
        "their processes have ended", lambda _: all(pod.left is None for pod in kubelet.pods.values()), MOST_SECONDS
    )
    claim(not wave.lost, f"{len(wave.lost)} calls were lost, such as {wave.lost[:1]}")


@scene(
    SCENES, "Want of room alone raises it as well: more models than one replica holds, one caller each, so no queue."
)
def _crowd(stage: ScalingStage) -> Outcome:
    """Callers who find no room."""
    wave = stage.wave
    others = [model for model in MODELS[BUSY] if model not in QUIET]
    before, now = wave.told_busy, wave.step()
    claim(now.queue < MOST_QUEUED, f"requests of the wave still make the mean {now.queue:.0f} ms")
    with wave.callers(len(others), others, QUIET_PAUSE):
        wanted = wave.until("a second replica is wanted", lambda now: now.wanted[BUSY] == 2, MOST_SECONDS)
        now = wave.samples[-1]
        claim(now.queue < MOST_QUEUED, f"requests wait {now.queue:.0f} ms in the queue: it was not room alone")
        claim(now.busy < MOST_BUSY, f"{now.busy:.0f} % of calls were told busy: it was not room alone")
        served = wanted + wave.until(
            "all models are in memory", lambda _: {*MODELS[BUSY]} == {*chain(*wave.places().values())}, MOST_SECONDS
        )
    text = (
        f"Models in use and those that found no room take {now.room:.0f} % of a replica's memory: after {wanted:.0f} s "
        f"KEDA wanted a second one, while requests waited {now.queue:.0f} ms in the queue and {now.busy:.1f} % of calls"
        f" were told busy. After {served:.0f} s all models were in memory; callers had come again "
        f"{wave.told_busy - before} times."
    )
    return Outcome(text, f"room for all in {served:.0f} s")


@scene(
    SCENES, "A pool whose every model may be cold has no replica while nobody calls; the first caller waits for one."
)
def _zero(stage: ScalingStage) -> Outcome:
    """None at all, and the first caller."""
    wave, replies = stage.wave, list[Reply]()
    wave.until(f"{RARE} has no replica", lambda now: now.wanted[RARE] == 0 == now.serving[RARE], MOST_SECONDS)
    caller = threading.Thread(target=lambda: replies.append(wave.call(MODELS[RARE][0])), daemon=True)
    caller.start()
    while caller.is_alive():
        wave.step()
    (reply,) = replies
    claim(reply.status == 200, f"the first caller was told {reply.status}: {reply.why}")
    claim(reply.tries == 1, f"the first caller had to come {reply.tries} times")
    gone = wave.until("nobody calls, and it goes", lambda now: now.wanted[RARE] == 0, MOST_SECONDS)
    text = f"The first caller waited {reply.seconds:.1f} s, for a Triton and his model, and was answered."
    return Outcome(f"{text} It went {gone:.0f} s after him.", f"first call {reply.seconds:.1f} s")


@scene(SCENES, "A pool of language models follows what waits for its engines, and stays while they are full.")
def _language(stage: ScalingStage) -> Outcome:
    """A wave of chats."""
    wave, before = stage.wave, len(stage.wave.calls)
    wave.until("KEDA is ready", lambda _: stage.platform.readiness(CHAT) == "True", MOST_SECONDS)
    with wave.callers(CHATS, MODELS[CHAT]):
        wanted = wave.until("a second engine is wanted", lambda now: now.wanted[CHAT] == 2, MOST_SECONDS)
        served = wanted + wave.until("it serves", lambda now: now.serving[CHAT] == 2, MOST_SECONDS)
        begun = wave.now
        while wave.now < begun + FULL_SECONDS:
            found = wave.step().wanted[CHAT]
            claim(found == 2, f"{found} engines are wanted, after {wave.now - begun:.0f} s with two that are full")
    gone = wave.until("one goes", lambda now: now.wanted[CHAT] == 1, MOST_SECONDS)
    _nothing_is_lost(stage)
    text = (
        f"After {wanted:.0f} s of load KEDA wanted a second engine, which served at {served:.0f} s. Both stayed for "
        f"the {FULL_SECONDS:.0f} s that they were full, though next to nothing waited; one went {gone:.0f} s after the "
        f"wave. Of "
        f"{len(wave.calls) - before:,} calls none was lost."
    )
    return Outcome(text, f"2 engines in {served:.0f} s, nothing lost")


@scene(
    SCENES,
    "Prometheus ends for longer than `downSeconds`, and comes back with nothing: calls go on, and no replica goes.",
)
def _blind(stage: ScalingStage) -> Outcome:
    """Prometheus is down, and begins anew."""
    wave = stage.wave
    with wave.callers(WAVE_CALLERS // 2, MODELS[BUSY][:1]):
        wave.until("replicas are wanted", lambda now: now.queue > MOST_QUEUED and now.serving[BUSY] > 1, MOST_SECONDS)
        begun = len(wave.samples)
        with stage.platform.without_prometheus(ANEW_SECONDS):
            _pass(wave, BLIND_SECONDS)
        _pass(wave, SEEING_SECONDS)
    busy, rare = ([sample.wanted[name] for sample in wave.samples[begun:]] for name in (BUSY, RARE))
    claim(busy == sorted(busy), f"{BUSY} was to have fewer replicas, with callers who wait in its queue: {busy}")
    claim(not any(rare), f"{RARE}, which nobody calls, was to have replicas: {rare}")
    claim(not wave.lost, f"{len(wave.lost)} calls were lost, such as {wave.lost[:1]}")
    text = (
        f"{busy[0]} replicas stayed for {BLIND_SECONDS} s without Prometheus, and were {busy[-1]} {SEEING_SECONDS} s"
        f" after a new one began, which reads every {ANEW_SECONDS} s. {RARE}, which nobody calls, stayed at none."
    )
    return Outcome(text, f"{busy[0]} replicas stay")


@scene(SCENES, "Load, replicas, what KEDA asks and what callers wait, over time.")
def _picture(stage: ScalingStage) -> Outcome:
    """The picture."""
    stage.picture.parent.mkdir(parents=True, exist_ok=True)
    draw(stage.wave, stage.picture, "Waves of load: real KEDA, Triton, Dynamo on one machine, simulated nodes, no GPU")
    return Outcome(f"{stage.picture}", str(stage.picture))
