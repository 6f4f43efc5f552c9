"""How restarts are said to people: what happens to the pods, for how long a pool or a model is missing, and why."""

from collections import Counter
from collections.abc import Callable, Iterable

from .restarts import Restart

BYTES_PER_SECOND = 250_000_000
"""At which a load is estimated: an assumption, which every text with an estimate states."""
MOST_CAUSES = 3
MOST_MODELS = 6

ASSUMPTIONS = (
    "Times are bounds from what the pods declare: the grace period to stop, then start-up probes and the first look of "
    "readiness; a pod that takes longer counts as stuck. Scheduling, image pulling and mounting come on top: nothing "
    "declares them. A preloaded model is cold until its replica is ready. On a new on-demand replica nothing is "
    "resident: pinned models load at start, the others when they are called first; loads are estimated at "
    f"{BYTES_PER_SECOND // 10**6} MB/s, which is an assumption."
)


def restarting(restarts: Iterable[Restart]) -> str:
    """Return `2 pools restart, 1 proxy restarts`, or an empty text."""
    counts = Counter(restart.workload.role for restart in restarts)
    plural = {"proxy": "proxies"}
    return ", ".join(
        f"{count} {role} restarts" if count == 1 else f"{count} {plural.get(role, f'{role}s')} restart"
        for role, count in sorted(counts.items())
    )


def how(restart: Restart) -> str:
    """Return in which way pods are renewed: `2 pods, one after another`."""
    workload, update = restart.workload, restart.replacing
    if workload.most == 0:
        return "no pods"
    if restart.replaced:
        return f"{workload.pods}, ALL AT ONCE: the object is deleted and made anew"
    kept = f", without the first {update.kept}" if update.kept else ""
    if workload.most == 1 and update.unavailable:
        return f"{workload.pods}{kept}: the old one ends first" if update.waits_for_end else workload.pods
    if workload.most == 1:
        return f"{workload.pods}: the new one is ready before the old one goes"
    if update.surge and not update.unavailable:
        at_once = "one" if update.surge == 1 else str(update.surge)
        return f"{workload.pods}, {at_once} at a time, the new before the old goes"
    if update.unavailable >= workload.most:
        return f"{workload.pods}{kept}, all at once"
    at_once = "one after another" if update.unavailable == 1 else f"{update.unavailable} at a time"
    return f"{workload.pods}{kept}, {at_once}"


def without_replica(restart: Restart) -> str:
    """Return how long none of the pods is there."""
    seconds = restart.without_replica
    if seconds == 0:
        return "never"
    least, most = restart.workload.least, restart.workload.most
    scaled = f" (while there is {least})" if 0 < least < most else ""
    return (f"up to {duration(seconds)}" if seconds is not None else "no bound declared") + scaled


def whole(restart: Restart) -> str:
    """Return how long the whole update takes."""
    return "no bound declared" if restart.whole is None else f"up to {duration(restart.whole)}"


def cold(restart: Restart, named: Callable[[str], str]) -> str:
    """Return which models are cold, and until when; `named` writes a model's name for whoever reads it."""
    models = restart.models
    if not models or restart.workload.most == 0:
        return "none"
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    missing = restart.without_replica != 0
    if restart.loading == "preload" and not missing:
        return f"none: other replicas serve the {count}"
    more = f" and {len(models) - MOST_MODELS} more" if len(models) > MOST_MODELS else ""
    names = ", ".join(named(model.name) for model in models[:MOST_MODELS]) + more
    if restart.loading == "preload":
        return f"{count} ({names}), until a replica is ready"
    pinned = sum(model.pinned for model in models)
    parts = [f"{count} ({names}{f'; {pinned} pinned' if pinned else ''})"]
    parts.append("all cold, each until its first request is loaded" if missing else "cold on each new replica")
    if to_load := _loading(restart):
        parts.append(to_load)
    if restart.wait_seconds is not None:
        parts.append(f"a caller waits up to {restart.wait_seconds} s for a load, then is told to try again")
    return "; ".join(parts)


def because(restart: Restart) -> str:
    """Return which fields are the reason."""
    more = len(restart.causes) - MOST_CAUSES
    return ", ".join(restart.causes[:MOST_CAUSES]) + (f" and {more} more" if more > 0 else "")


def _loading(restart: Restart) -> str:
    known = [model.footprint for model in restart.models if model.footprint is not None]
    rest = len(restart.models) - len(known)
    if not known:
        return ""
    amount = f"{sum(known) / 2**30:.1f} GiB to load, ≈ {duration(-(-sum(known) // BYTES_PER_SECOND))}"
    return amount + (f" without {rest} of unknown size" if rest else "")


def duration(seconds: int) -> str:
    """Return seconds in words that people compare: `50 s`, `16 min`, `1 h 20 min`; rounded up."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours and minutes else f"{hours} h" if hours else f"{minutes} min"
