"""The scenes of `make demo`: publishing, loading, evicting, waiting, failed loads, and processes killed by SIGKILL."""

import statistics
import threading
import time
from contextlib import suppress
from typing import Any

import urllib3
from tidegate.output import size

from lab.local_plane.environment import ON_DEMAND, POLICY, POLL_SECONDS, PRELOAD

from . import zoo
from .playing import NotSoError, Scene, claim, scene, until
from .stage import IDLE_SECONDS, LEASE_SECONDS, TUNING, WAIT_SECONDS, Stage

SCENES: list[Scene[Stage]] = []
CALLERS = 20
WARM_CALLS = 200
NOTES, NOTE_MS = 48, 250
PRESSING = ("ibex", "lynx", "cat")
_NOT_THERE = (400, 404)
WARM, COLD = "dog", "ant"
WITHOUT_SECONDS = 2 * LEASE_SECONDS  # The time without a policy: every lease would end without a renewal.
_RETRYABLE = frozenset((200, 502, 503))
_IN_MEMORY = ("resident", "draining")


@scene(
    SCENES,
    f"The preload Triton polls its repository every {POLL_SECONDS} s. The demo stages a model next to it, then renames "
    "the model into it, the configuration last.",
)
def publish(stage: Stage) -> str:
    """Publish a model while its server serves."""
    visitor, newcomer = stage.visitor, zoo.NEWCOMER
    before = visitor.call(newcomer.name)
    claim(before.status in _NOT_THERE, f"a call of {newcomer.name} got {before.status} before it was published")
    with visitor.calling(zoo.RESIDENT.name) as tallies:
        stage.platform.publish(PRELOAD, newcomer.model())
        first = until(f"{newcomer.name} answers", lambda: visitor.call(newcomer.name).is_right(newcomer.name))
        with visitor.calling(newcomer.name) as of_newcomer:
            stage.platform.publish(PRELOAD, newcomer.model((1, 2)))
            second = until("version 2 answers", lambda: (visitor.call(newcomer.name).body or {}).get("VERSION") == 2)
    calls = tallies[zoo.RESIDENT.name].calls + of_newcomer[newcomer.name].calls
    failed = tallies[zoo.RESIDENT.name].failed + of_newcomer[newcomer.name].failed
    claim(not failed, f"{failed} of {calls} calls failed while models were published")
    return (
        f"{newcomer.name} answered {first:.1f} s after it was published, its version 2 after {second:.1f} s. "
        f"Of {calls} calls meanwhile, none failed"
    )


@scene(SCENES, f"{CALLERS} callers call the same model at the same time. It is loaded once, and all get a response.")
def cold(stage: Stage) -> str:
    """A cold model loads on its first call."""
    claim(stage.state("fox") == "cold", f"fox is {stage.state('fox')} before its first call")
    replies = stage.visitor.at_once("fox", CALLERS)
    right = sum(reply.is_right("fox") for reply in replies)
    loads = sum(event["model"] == "fox" for event in stage.events("loaded"))
    statuses = [each.status for each in replies]
    claim(right == CALLERS, f"{CALLERS - right} of {CALLERS} callers got no correct response: {statuses}")
    claim(loads == 1, f"fox was loaded {loads} times")
    slowest = max(reply.seconds for reply in replies)
    again = stage.visitor.call("fox").seconds
    return (
        f"{CALLERS} callers over both proxies, {loads} load, {right} correct responses within {slowest:.1f} s. "
        f"The next call took {again * 1000:.0f} ms"
    )


@scene(SCENES, "A proxy with a lease on a model sends calls directly to Triton. The policy only sees lease renewals.")
def warm(stage: Stage) -> str:
    """Calls of warm models need no extra request."""
    stage.wanted("fox")
    mark, before = stage.mark(), stage.acquires()
    medians = {}
    for model in ("fox", zoo.RESIDENT.name):
        replies = [stage.visitor.call(model) for _ in range(WARM_CALLS)]
        right = sum(reply.is_right(model) for reply in replies)
        claim(right == WARM_CALLS, f"{model} answered {right} of {WARM_CALLS} calls correctly")
        medians[model] = statistics.median(reply.seconds for reply in replies) * 1000
    requests = int(stage.acquires() - before)
    claim(requests == 0, f"the proxies requested {requests} leases, although they held one already")
    claim(not stage.events("loaded", mark), "the policy loaded a model")
    return (
        f"{WARM_CALLS} calls without a request to the policy. The median is {medians['fox']:.1f} ms, and "
        f"{medians[zoo.RESIDENT.name]:.1f} ms for a model of the preload server"
    )


@scene(
    SCENES,
    "The policy loads an ensemble together with its composing models. While a model without a declared size loads, "
    "the policy measures it.",
)
def sizes(stage: Stage) -> str:
    """Load an ensemble, and a model of unknown size."""
    stage.wanted(zoo.HERD, "goat")
    models = {each.model: each for each in stage.listing().models}
    herd, goat = models[zoo.HERD], models["goat"]
    parts = sum(zoo.SIZES[name] for name in zoo.HERD_OF)
    whole = herd.footprint_bytes or 0
    claim(whole >= parts, f"{zoo.HERD} is charged {size(whole)}, but its parts need {size(parts)}")
    true, found = zoo.SIZES["goat"], goat.footprint_bytes or 0
    claim(goat.footprint_from == "measured", f"the size of goat is {goat.footprint_from}, not measured")
    claim(abs(found - true) < true / 5, f"the policy measured {size(found)} for goat, which needs {size(true)}")
    return (
        f"{zoo.HERD} loaded together with {' and '.join(zoo.HERD_OF)} ({size(whole)}). The policy measured "
        f"goat while it loaded: {size(found)}"
    )


@scene(SCENES, f"To free memory, the policy evicts models without a lease that have been idle for {IDLE_SECONDS} s.")
def evict(stage: Stage) -> str:
    """Evict the least recently used model when memory is full."""
    order = ("goat", "fox", zoo.HERD, "hare")
    stage.wanted("hare")
    stage.wanted(*order)
    stage.idle(order[-1])
    mark = stage.mark()
    stage.wanted("emu")
    gone = [(event["model"], event["reason"], event["wantedBy"]) for event in stage.events("evicted", mark)]
    expected = (order[0], "room", "emu")
    claim(gone == [expected], f"{order[0]} is the least recently used, but the policy evicted {gone}")
    return f"Called in this order: {', '.join(order)}. To load emu, the policy evicted {order[0]} and no other model"


@scene(SCENES, "The custom policy largest-first is a few lines of Python (lab/demo/largest_first).")
def own_policy(stage: Stage) -> str:
    """Use a custom policy."""
    order, wanted = ("cat", "dog", "moose"), "ibex"
    largest = order[-1]
    with stage.policy("largest-first"):
        stage.wanted(*order)
        stage.idle(largest)
        mark = stage.mark()
        stage.wanted(wanted)
        gone = [event["model"] for event in stage.events("evicted", mark)]
    failures = stage.events("policy-failed")
    claim(gone == [largest], f"{largest} is the largest, but the policy evicted {gone}")
    claim(not failures, f"the policy failed: {failures}")
    return (
        f"Called in this order: {', '.join(order)}. To load {wanted}, the policy evicted {largest}, the largest, "
        "although it was used last. Now the policy is lru-idle again"
    )


@scene(SCENES, f"{zoo.SINGER} streams a response while calls of other models fill the rest of the slice.")
def lease(stage: Stage) -> str:
    """Never evict a leased model."""
    song: list[int] = []
    evicted: list[dict[str, Any]] = []
    mark = stage.mark()

    def listen() -> None:
        with suppress(ValueError, urllib3.exceptions.HTTPError):  # Too few notes then fail the claim.
            song.extend(stage.visitor.listen(NOTES, NOTE_MS, proxy=1))
        evicted.extend(stage.events("evicted", mark))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    until(f"{zoo.SINGER} sings", lambda: stage.state(zoo.SINGER) == "resident")
    for model in PRESSING:
        if listener.is_alive():
            stage.wanted(model)
    listener.join()
    during = [event["model"] for event in evicted if event["wantedBy"] != zoo.SINGER]
    claim(zoo.SINGER not in during, f"{zoo.SINGER} was evicted while it streamed")
    claim(during, "there was no pressure: no model was evicted during the stream")
    claim(song == list(range(NOTES)), f"{len(song)} of {NOTES} notes arrived")
    return (
        f"{zoo.SINGER} streamed {len(song)} responses over {NOTES * NOTE_MS / 1000:.0f} s. Meanwhile the policy "
        f"evicted {', '.join(during)}, but not {zoo.SINGER}"
    )


@scene(SCENES, f"whale stays for {zoo.IDLE_SECONDS['whale']} s after its last call, and orca does not fit next to it.")
def busy(stage: Stage) -> str:
    """Return busy, and when to retry."""
    stage.wanted("whale")
    first = stage.visitor.call("orca")
    claim(first.status == 503, f"a call of orca got {first.status}, although it does not fit next to whale")
    after = first.retry_after
    if after is None:
        raise NotSoError("the busy response has no Retry-After")
    claim(first.seconds < WAIT_SECONDS, f"the busy response came only after {first.seconds:.1f} s")
    time.sleep(after)
    reply = stage.visitor.want("orca")
    claim(reply.is_right("orca"), f"a call of orca got {reply.status} after {after:.0f} s: {reply.why}")
    return (
        f"503 after {first.seconds * 1000:.0f} ms with Retry-After: {after:.0f}. After that time orca answered at try "
        f"{reply.tries}"
    )


@scene(
    SCENES,
    f"{zoo.BROKEN.name} was published without its weights. The policy tries to load it {TUNING.failures_most} times, "
    "then no more.",
)
def quarantine(stage: Stage) -> str:
    """Quarantine a model that fails to load."""
    name, mark = zoo.BROKEN.name, stage.mark()
    refused = stage.visitor.want(name)
    claim(refused.status == 424, f"a call of {name} got {refused.status} after {refused.tries} tries")
    claim("horn.npy" in refused.why, f"the response does not state why {name} fails: {refused.why}")
    again = sum(stage.visitor.call(name).status == 424 for _ in range(CALLERS))
    failures = len(stage.events("load-failed", mark))
    claim(again == CALLERS, f"{again} of {CALLERS} more calls got 424")
    claim(failures == TUNING.failures_most, f"the policy tried to load {name} {failures} times")
    reason = " ".join(refused.why.partition("\n\nAt:")[0].split())  # Without the traceback.
    stage.show.note(f"the reason in the response: {reason}")
    stage.platform.publish(ON_DEMAND, zoo.BROKEN.model((2,)))
    begun = time.monotonic()
    until(f"{name} leaves quarantine", lambda: stage.visitor.want(name).is_right(name), 30)
    seconds = time.monotonic() - begun
    return (
        f"The policy tried {failures} times. {again} more calls got 424 with the reason immediately, without a load. "
        f"{seconds:.1f} s after version 2 was published, the model answered"
    )


@scene(
    SCENES,
    f"Inference continues, even after the {LEASE_SECONDS} s of a lease. Only loads stop. A new policy reads which "
    "models Triton has loaded, and continues from there.",
)
def policy_killed(stage: Stage) -> str:
    """Kill the eviction policy."""
    stage.leased(WARM)
    held = {each.model for each in stage.listing().models if each.state == "resident"}
    with stage.visitor.calling(WARM) as tallies:
        stage.platform.kill(POLICY)
        begun = time.monotonic()
        refused = stage.visitor.call(COLD)
        time.sleep(max(0.0, begun + WITHOUT_SECONDS - time.monotonic()))
        without = tallies[WARM].calls
        stage.platform.start_policy()
        until("the new policy has read Triton's index", lambda: stage.state(WARM) in _IN_MEMORY)
        found = {each.model for each in stage.listing().models if each.state in _IN_MEMORY}
        stage.wanted(COLD)
    tally = tallies[WARM]
    loaded = [event["model"] for event in stage.events("loaded")]
    claim(refused.status == 503 and refused.retry_after, f"without a policy, a call of {COLD} got {refused.status}")
    claim(not tally.failed, f"{tally.failed} of {tally.calls} calls of {WARM} failed: {dict(tally.statuses)}")
    claim(held <= found, f"{', '.join(sorted(held - found))} was resident, but the new policy did not find it")
    claim(loaded == [COLD], f"the new policy loaded {loaded}, although only {COLD} was missing")
    return (
        f"Of {tally.calls} calls of {WARM}, {without} of them in {WITHOUT_SECONDS} s without a policy, none failed. "
        f"A call of the cold model {COLD} got 503 with Retry-After. The new policy found {', '.join(sorted(held))} in "
        f"Triton's index, and loaded {COLD}"
    )


@scene(SCENES, "Its leases become void, callers get Retry-After, and models load again when they are called.")
def triton_killed(stage: Stage) -> str:
    """Kill Triton with all its models."""
    preloaded = zoo.RESIDENT.name
    stage.leased(WARM)
    with stage.visitor.calling(WARM, preloaded) as tallies:
        time.sleep(0.5)
        begun = time.monotonic()
        stage.platform.kill(ON_DEMAND)
        time.sleep(0.5)
        stage.platform.start_on_demand()
        back = until(f"{WARM} answers again", lambda: stage.visitor.want(WARM).is_right(WARM), 60)
        seconds = time.monotonic() - begun
    tally, other = tallies[WARM], tallies[preloaded]
    strange = set(tally.statuses) - _RETRYABLE
    claim(not strange and not tally.wrong, f"calls of {WARM} got {dict(tally.statuses)}, {tally.wrong} of them wrong")
    claim(not other.failed, f"{other.failed} calls of {preloaded} failed, although it is on the other Triton")
    claim(not tally.without_retry, f"{tally.without_retry} busy responses had no Retry-After")
    return (
        f"{WARM} answered again {seconds:.1f} s after its Triton was killed ({back:.1f} s after the new one was "
        f"ready). Meanwhile {tally.failed} of its calls failed and could be retried. Of {other.calls} calls of "
        f"{preloaded}, none failed"
    )
