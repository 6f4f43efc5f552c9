"""What is shown while parts are killed, with `kill -9` and without a warning."""

import time

from . import zoo
from .platform import LEASE_SECONDS
from .playing import Outcome, claim
from .stage import Stage

WARM, COLD = "dog", "ant"
WITHOUT_SECONDS = 2 * LEASE_SECONDS
"""How long there is no policy: longer than any lease lasts that is not renewed."""
_RETRYABLE = frozenset((200, 502, 503))
_IN_MEMORY = ("resident", "draining")


def policy_killed(stage: Stage) -> Outcome:
    """The policy is killed while models are called, and started again."""
    stage.leased(WARM)
    held = {each.model for each in stage.listing().models if each.state == "resident"}
    with stage.visitor.calling(WARM) as tallies:
        stage.platform.kill_policy()
        begun = time.monotonic()
        refused = stage.visitor.call(COLD)
        time.sleep(max(0.0, begun + WITHOUT_SECONDS - time.monotonic()))
        without = tallies[WARM].calls
        stage.platform.start_policy()
        stage.until("Triton's index is read", lambda: stage.state(WARM) in _IN_MEMORY)
        found = {each.model for each in stage.listing().models if each.state in _IN_MEMORY}
        stage.wanted(COLD)
    tally = tallies[WARM]
    loaded = [event["model"] for event in stage.events("loaded")]
    stage.slice("then")
    claim(refused.status == 503 and refused.retry_after, f"without a policy, {COLD} was answered {refused.status}")
    claim(not tally.failed, f"{tally.failed} of {tally.calls} calls of {WARM} failed: {tally.usual_reason}")
    claim(held <= found, f"{', '.join(sorted(held - found))} was resident, and the new policy did not find it")
    claim(loaded == [COLD], f"the new policy loaded {loaded}, and only {COLD} was missing")
    return Outcome(
        f"{tally.calls} calls of {WARM}, {without} of them in {WITHOUT_SECONDS} s without a policy: none failed. "
        f"{COLD}, cold, was told 503 and to come back; the new policy found {', '.join(sorted(held))} in Triton's "
        f"index, and loaded {COLD}",
        f"{without} calls without a policy, none failed",
        {"calls": tally.calls, "failed": tally.failed, "without": without, "found": sorted(found)},
    )


def triton_killed(stage: Stage) -> Outcome:
    """The on-demand Triton is killed with all its models while they are called, and started again."""
    preloaded = zoo.RESIDENT.name
    stage.leased(WARM)
    with stage.visitor.calling(WARM, preloaded) as tallies:
        time.sleep(0.5)
        begun = time.monotonic()
        stage.platform.kill_on_demand()
        time.sleep(0.5)
        stage.platform.start_on_demand()
        back = stage.until(f"{WARM} answers again", lambda: stage.visitor.want(WARM).is_right(WARM), 60)
        seconds = time.monotonic() - begun
    stage.slice("then")
    tally, other = tallies[WARM], tallies[preloaded]
    strange = set(tally.statuses) - _RETRYABLE
    claim(not strange and not tally.wrong, f"{WARM} was answered {dict(tally.statuses)}, {tally.wrong} of them wrong")
    claim(not other.failed, f"{other.failed} calls of {preloaded} failed, which is on the other Triton")
    claim(not tally.without_retry, f"{tally.without_retry} answers of busy did not say when to come back")
    return Outcome(
        f"{WARM} answers again {seconds:.1f} s after its Triton was killed ({back:.1f} s after the new one was ready). "
        f"Meanwhile {tally.failed} of its calls were told to try again; of {other.calls} calls of {preloaded}, none "
        "failed",
        f"it answers again after {seconds:.1f} s",
        {"failed": tally.failed, "seconds": seconds, "others": other.calls, "others_failed": other.failed},
    )
