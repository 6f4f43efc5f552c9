"""Which pods a change starts anew, one after another or all at once, and how long something is missing meanwhile.

Here stands also how that is said: what happens to the pods, for how long a pool or a model is missing, and why.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .compare import compare, field_changes
from .models import Model, Serving, serving
from .workloads import Replacing, Workload, items, text, workloads

Tree = Mapping[str, Any]
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
_QUANTITY = re.compile(r"(?P<number>[0-9]*\.?[0-9]+)(?P<unit>m|[kMGTPE]|[KMGTPE]i)?")
_UNITS = {"m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_AMOUNTS = ("limits", "requests")


@dataclass(frozen=True)
class Restart:
    """A workload whose pods are all started anew."""

    workload: Workload
    replaced: bool
    """Whether the object is made anew: then all its pods go at once."""
    causes: tuple[str, ...]
    """Fields of the pod template that changed, or the immutable ones."""
    loading: str = ""
    """`preload` or `on-demand`; empty where no models are served."""
    models: tuple[Model, ...] = ()
    """Models that it served before and serves after."""
    wait_seconds: int | None = None
    """How long a caller waits for a load, where it is declared."""

    @property
    def replacing(self) -> Replacing:
        """How the update goes, at the least number of pods."""
        return self.workload.replacing(self.workload.least)

    @property
    def without_replica(self) -> int | None:
        """Longest time without any replica, in seconds: 0 for never, None where nothing bounds it."""
        pods, update = self.workload.least, self.replacing
        if self.workload.most == 0 or (not self.replaced and (update.kept or update.unavailable < pods)):
            return 0
        if self.replaced:
            return _sum(self.workload.stop_seconds, self.workload.start_seconds)
        if not update.unavailable:
            return 0
        return self._one_pod(update)

    @property
    def whole(self) -> int | None:
        """Longest time that the whole update takes, at the most pods; None where nothing bounds it."""
        pods = self.workload.most
        update = self.workload.replacing(pods)
        if self.replaced:
            return _sum(self.workload.stop_seconds, self.workload.start_seconds)
        at_once = max(1, update.unavailable + update.surge)
        rounds = -(-max(0, pods - update.kept) // at_once)
        each = self._one_pod(update)
        last = 0 if update.waits_for_end else self.workload.stop_seconds
        return None if each is None else rounds * each + (last if rounds else 0)

    def _one_pod(self, update: Replacing) -> int | None:
        return _sum(self.workload.stop_seconds if update.waits_for_end else 0, self.workload.start_seconds)


def restarts(before: Iterable[Tree], after: Iterable[Tree]) -> list[Restart]:
    """Return the workloads whose pods start anew on the way from one state of a stack to another."""
    before, after = list(before), list(after)
    old, new = workloads(before), workloads(after)
    was, will = serving(before), serving(after)
    found = (_restart(old[key], workload, was, will) for key, workload in new.items() if key in old)
    return [restart for restart in found if restart is not None]


def _restart(old: Workload, new: Workload, was: Serving, will: Serving) -> Restart | None:
    immutable = _immutable(old, new)
    causes = immutable or template_changes(old, new)
    if not causes or (not immutable and new.replacing(new.most).by_hand):
        return None
    pool = new.pool
    if pool is None:
        return Restart(new, bool(immutable), causes)
    known = {model.name for model in was.models.get(pool, ())}
    settings = (text(volume, "configMap", "name") for volume in items(new.pod, "volumes"))
    return Restart(
        new,
        bool(immutable),
        causes,
        loading=will.loading.get(pool, ""),
        models=tuple(model for model in will.models.get(pool, ()) if model.name in known),
        wait_seconds=next((will.wait_seconds[name] for name in settings if name in will.wait_seconds), None),
    )


def _immutable(old: Workload, new: Workload) -> tuple[str, ...]:
    return tuple(reason for change in compare([dict(old.item)], [dict(new.item)]) for reason in change.reasons)


def template_changes(old: Workload, new: Workload) -> tuple[str, ...]:
    """Return the fields of the pod template whose change makes new pods."""
    before, after = (_with_amounts(workload.template) for workload in (old, new))
    fields = field_changes({"template": before}, {"template": after})
    return tuple(dict.fromkeys(field.place.removeprefix("template.").removeprefix("spec.") for field in fields))


def _with_amounts(tree: Any, key: str = "") -> Any:
    """Return a template in which quantities that the API server writes alike are equal: `1000m` and `1`."""
    if isinstance(tree, Mapping):
        amounts = key in _AMOUNTS
        return {
            name: _amount(item) if amounts or name == "sizeLimit" else _with_amounts(item, name)
            for name, item in tree.items()
        }
    return [_with_amounts(item) for item in tree] if isinstance(tree, list) else tree


def _amount(value: Any) -> Any:
    """Return a quantity as a text of one form: `1024Mi` is kept as `1Gi`, but not as `1073741824`."""
    found = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or found is None:
        return value
    unit = found["unit"] or ""
    if unit.endswith("i"):
        return f"{Decimal(found['number']) * 1024 ** (1 + 'KMGTPE'.index(unit[0])):f} bytes"
    return f"{Decimal(found['number']).scaleb(_UNITS.get(unit, 0)).normalize():f}"


def _sum(stop: int, start: int | None) -> int | None:
    return None if start is None else stop + start


# ---- in words ----


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
