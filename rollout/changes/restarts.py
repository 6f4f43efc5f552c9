"""Which pods a change starts anew, one after another or all at once, and how long something is missing meanwhile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .compare import compare, field_changes
from .models import Model, Serving, serving
from .pod_template import settled
from .trees import items, text
from .workloads import Replacing, Workload, workloads

Tree = Mapping[str, Any]


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
    before, after = settled(old.template), settled(new.template)
    if before == after:
        return ()
    fields = field_changes({"template": before}, {"template": after})
    return tuple(dict.fromkeys(field.place.removeprefix("template.").removeprefix("spec.") for field in fields))


def _sum(stop: int, start: int | None) -> int | None:
    return None if start is None else stop + start
