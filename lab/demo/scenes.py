"""The scenes: publishing, loading, evicting, waiting, failing to load; and parts that are killed with `kill -9`."""

import statistics
import threading
import time
from contextlib import suppress
from typing import Any

import urllib3
from rich.filesize import decimal

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
WITHOUT_SECONDS = 2 * LEASE_SECONDS  # How long there is no policy: longer than any lease lasts that is not renewed.
_RETRYABLE = frozenset((200, 502, 503))
_IN_MEMORY = ("resident", "draining")


@scene(
    SCENES,
    f"The preload Triton looks into its repository every {POLL_SECONDS} s. A model is staged outside of it and "
    "renamed in, its configuration last.",
)
def publish(stage: Stage) -> str:
    """A model is published while its server serves."""
    visitor, newcomer = stage.visitor, zoo.NEWCOMER
    before = visitor.call(newcomer.name)
    claim(before.status in _NOT_THERE, f"{newcomer.name} was answered {before.status} before it was published")
    with visitor.calling(zoo.RESIDENT.name) as tallies:
        stage.platform.publish(PRELOAD, newcomer.model())
        first = until(f"{newcomer.name} answers", lambda: visitor.call(newcomer.name).is_right(newcomer.name))
        with visitor.calling(newcomer.name) as of_newcomer:
            stage.platform.publish(PRELOAD, newcomer.model((1, 2)))
            second = until("version 2 answers", lambda: (visitor.call(newcomer.name).said or {}).get("VERSION") == 2)
    calls = tallies[zoo.RESIDENT.name].calls + of_newcomer[newcomer.name].calls
    failed = tallies[zoo.RESIDENT.name].failed + of_newcomer[newcomer.name].failed
    claim(not failed, f"{failed} of {calls} calls failed while models were published")
    return (
        f"{newcomer.name} answers {first:.1f} s after it was published, its version 2 after {second:.1f} s; "
        f"{calls} calls meanwhile, none failed"
    )


@scene(SCENES, f"{CALLERS} callers want the same model at once: it is loaded one time, and all of them have an answer.")
def cold(stage: Stage) -> str:
    """A cold model loads on its first call."""
    claim(stage.state("fox") == "cold", f"fox is {stage.state('fox')} before anybody has called it")
    replies = stage.visitor.at_once("fox", CALLERS)
    right = sum(reply.is_right("fox") for reply in replies)
    loads = sum(event["model"] == "fox" for event in stage.events("loaded"))
    claim(
        right == CALLERS, f"{CALLERS - right} of {CALLERS} callers had no answer: {[each.status for each in replies]}"
    )
    claim(loads == 1, f"fox was loaded {loads} times")
    slowest = max(reply.seconds for reply in replies)
    again = stage.visitor.call("fox").seconds
    return (
        f"{CALLERS} callers over both proxies, {loads} load, {right} right answers after {slowest:.1f} s; "
        f"the next call took {again * 1000:.0f} ms"
    )


@scene(
    SCENES,
    "A proxy with a lease on a model sends calls straight to Triton. The policy learns of them from renewals only.",
)
def warm(stage: Stage) -> str:
    """Warm models cost nothing more."""
    stage.wanted("fox")
    mark, before = stage.mark(), stage.acquires()
    medians = {}
    for model in ("fox", zoo.RESIDENT.name):
        replies = [stage.visitor.call(model) for _ in range(WARM_CALLS)]
        right = sum(reply.is_right(model) for reply in replies)
        claim(right == WARM_CALLS, f"{model} answered {right} of {WARM_CALLS} calls correctly")
        medians[model] = statistics.median(reply.seconds for reply in replies) * 1000
    requests = int(stage.acquires() - before)
    claim(requests == 0, f"the proxies requested {requests} leases, although they held one")
    claim(not stage.events("loaded", mark), "the policy loaded a model")
    return (
        f"{WARM_CALLS} calls, no request to the policy: {medians['fox']:.1f} ms each (median), and "
        f"{medians[zoo.RESIDENT.name]:.1f} ms for a model of the preload server"
    )


@scene(
    SCENES,
    "The policy loads the composing models of an ensemble with it. It measures a model without a declared size while "
    "it loads.",
)
def sizes(stage: Stage) -> str:
    """Ensembles and unknown sizes."""
    stage.wanted(zoo.HERD, "goat")
    models = {each.model: each for each in stage.listing().models}
    herd, goat = models[zoo.HERD], models["goat"]
    parts = sum(zoo.SIZES[name] for name in zoo.HERD_OF)
    whole = herd.footprint_bytes or 0
    claim(whole >= parts, f"{zoo.HERD} counts {decimal(whole)}, and its parts take {decimal(parts)}")
    true, found = zoo.SIZES["goat"], goat.footprint_bytes or 0
    claim(goat.footprint_from == "measured", f"the size of goat is {goat.footprint_from}")
    claim(
        abs(found - true) < true / 5,
        f"the policy measured {decimal(found)} for goat, which takes {decimal(true)}",
    )
    return (
        f"{zoo.HERD} came with {' and '.join(zoo.HERD_OF)} ({decimal(whole)}). The policy measured "
        f"goat while it loaded: {decimal(found)}"
    )


@scene(SCENES, f"Room comes from models that nobody holds a lease on and that were idle for {IDLE_SECONDS} s.")
def evict(stage: Stage) -> str:
    """Full: the least recently used goes."""
    order = ("goat", "fox", zoo.HERD, "hare")
    stage.wanted("hare")
    stage.wanted(*order)
    stage.idle(order[-1])
    mark = stage.mark()
    stage.wanted("emu")
    gone = [(event["model"], event["reason"], event["wantedBy"]) for event in stage.events("evicted", mark)]
    expected = (order[0], "room", "emu")
    claim(gone == [expected], f"{order[0]} was used least lately; evicted were {gone}")
    return f"called in this order: {', '.join(order)}. For emu, {order[0]} had to go, and no other model"


@scene(
    SCENES,
    "largest-first is a few lines of one's own (lab/demo/largest_first), beside the policies that are there.",
)
def own_policy(stage: Stage) -> str:
    """A policy of one's own."""
    order, wanted = ("cat", "dog", "moose"), "ibex"
    largest = order[-1]
    with stage.policy("largest-first"):
        stage.wanted(*order)
        stage.idle(largest)
        mark = stage.mark()
        stage.wanted(wanted)
        gone = [event["model"] for event in stage.events("evicted", mark)]
    failures = stage.events("policy-failed")
    claim(gone == [largest], f"{largest} is the largest, though it was used last; evicted were {gone}")
    claim(not failures, f"the policy failed: {failures}")
    return (
        f"called in this order: {', '.join(order)}. For {wanted}, {largest} had to go, the largest, though it was used "
        "last. Now the policy is lru-idle again"
    )


@scene(SCENES, f"{zoo.SINGER} streams an answer while models that need the whole rest of the slice are called.")
def lease(stage: Stage) -> str:
    """What is leased is never touched."""
    song: list[int] = []
    evicted: list[dict[str, Any]] = []
    mark = stage.mark()

    def listen() -> None:
        with suppress(ValueError, urllib3.exceptions.HTTPError):  # too few notes tell as well
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
    claim(zoo.SINGER not in during, f"{zoo.SINGER} was evicted in the middle of its song")
    claim(during, "there was no pressure: nobody was evicted while the song lasted")
    claim(song == list(range(NOTES)), f"of {NOTES} notes, {len(song)} came")
    return (
        f"{zoo.SINGER} streamed {len(song)} answers over {NOTES * NOTE_MS / 1000:.0f} s; {', '.join(during)} had to go "
        f"meanwhile, {zoo.SINGER} did not"
    )


@scene(
    SCENES, f"whale may stay for {zoo.IDLE_SECONDS['whale']} s after its last call, and orca does not fit beside it."
)
def busy(stage: Stage) -> str:
    """Busy says when to come back."""
    stage.wanted("whale")
    first = stage.visitor.call("orca")
    claim(first.status == 503, f"orca was answered {first.status}, and there is no room for it beside whale")
    after = first.retry_after
    if after is None:
        raise NotSoError("busy did not say when to come back")
    claim(first.seconds < WAIT_SECONDS, f"busy was said after {first.seconds:.1f} s of hopeless waiting")
    time.sleep(after)
    reply = stage.visitor.want("orca")
    claim(reply.is_right("orca"), f"orca was answered {reply.status} after {after:.0f} s: {reply.why}")
    return (
        f"503 after {first.seconds * 1000:.0f} ms, Retry-After {after:.0f} s; after that orca answered after "
        f"{reply.tries} tries"
    )


@scene(
    SCENES,
    f"{zoo.BROKEN.name} was published without its weights. The policy tries to load it {TUNING.failures_most} times, "
    "then no more.",
)
def quarantine(stage: Stage) -> str:
    """The policy puts aside a model that fails to load."""
    name, mark = zoo.BROKEN.name, stage.mark()
    refused = stage.visitor.want(name)
    claim(refused.status == 424, f"{name} was answered {refused.status} after {refused.tries} tries")
    claim("horn.npy" in refused.why, f"the answer does not state what is wrong with {name}: {refused.why}")
    again = sum(stage.visitor.call(name).status == 424 for _ in range(CALLERS))
    failures = len(stage.events("load-failed", mark))
    claim(again == CALLERS, f"{again} of {CALLERS} more calls were answered 424")
    claim(failures == TUNING.failures_most, f"the policy tried to load {name} {failures} times")
    reason = " ".join(refused.why.partition("\n\nAt:")[0].split())  # without the trace below it
    stage.show.note(f"the reason, as a caller reads it: {reason}")
    stage.platform.publish(ON_DEMAND, zoo.BROKEN.model((2,)))
    begun = time.monotonic()
    until(f"{name} leaves quarantine", lambda: stage.visitor.want(name).is_right(name), 30)
    seconds = time.monotonic() - begun
    return (
        f"tried {failures} times, then answered 424 with the reason, {again} calls at once and without a load. "
        f"{seconds:.1f} s after a version 2 was published, it answers"
    )


@scene(
    SCENES,
    f"Inference goes on for longer than the {LEASE_SECONDS} s of a lease; only loads stop. A new policy reads "
    "Triton's index and goes on from there.",
)
def policy_killed(stage: Stage) -> str:
    """The policy is killed."""
    stage.leased(WARM)
    held = {each.model for each in stage.listing().models if each.state == "resident"}
    with stage.visitor.calling(WARM) as tallies:
        stage.platform.kill(POLICY)
        begun = time.monotonic()
        refused = stage.visitor.call(COLD)
        time.sleep(max(0.0, begun + WITHOUT_SECONDS - time.monotonic()))
        without = tallies[WARM].calls
        stage.platform.start_policy()
        until("Triton's index is read", lambda: stage.state(WARM) in _IN_MEMORY)
        found = {each.model for each in stage.listing().models if each.state in _IN_MEMORY}
        stage.wanted(COLD)
    tally = tallies[WARM]
    loaded = [event["model"] for event in stage.events("loaded")]
    claim(refused.status == 503 and refused.retry_after, f"without a policy, {COLD} was answered {refused.status}")
    claim(not tally.failed, f"{tally.failed} of {tally.calls} calls of {WARM} failed: {dict(tally.statuses)}")
    claim(held <= found, f"{', '.join(sorted(held - found))} was resident, and the new policy did not find it")
    claim(loaded == [COLD], f"the new policy loaded {loaded}, and only {COLD} was missing")
    return (
        f"{tally.calls} calls of {WARM}, {without} of them in {WITHOUT_SECONDS} s without a policy: none failed. "
        f"{COLD}, cold, was told 503 and to come back; the new policy found {', '.join(sorted(held))} in Triton's "
        f"index, and loaded {COLD}"
    )


@scene(SCENES, "Its leases are void, callers are told to try again, and models load anew when they are called.")
def triton_killed(stage: Stage) -> str:
    """Triton is killed with all its models."""
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
    claim(not strange and not tally.wrong, f"{WARM} was answered {dict(tally.statuses)}, {tally.wrong} of them wrong")
    claim(not other.failed, f"{other.failed} calls of {preloaded} failed, which is on the other Triton")
    claim(not tally.without_retry, f"{tally.without_retry} answers of busy did not say when to come back")
    return (
        f"{WARM} answers again {seconds:.1f} s after its Triton was killed ({back:.1f} s after the new one was ready). "
        f"Meanwhile {tally.failed} of its calls were told to try again; of {other.calls} calls of {preloaded}, none "
        "failed"
    )
