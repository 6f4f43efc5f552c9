"""What is known of each model before it is loaded: from the settings, the repository, and earlier loads."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate_contracts.eviction import EvictionSettings, ManagedModel

from ..core.rules import ModelSpec
from ..triton.repository import UNSEEN, OnDisk, Repository, RepositoryError
from .footprints import Footprints

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broken:
    """A model whose folder cannot be understood: Triton is to say what it thinks of it, when somebody wants it."""

    why: str


Seen = OnDisk | Broken


class Catalog:
    """The pool's models."""

    def __init__(self, settings: EvictionSettings) -> None:
        self.repository = Repository(settings.repository)
        self._managed = {model.name: model for model in settings.models}

    def look(self, before: Mapping[str, Seen]) -> dict[str, Seen]:
        """Return what the repository holds of the pool's models and their parts; blocks while it reads.

        What cannot be read for now is as it was before: a file system that fails takes no model away.
        """
        if self.repository.is_remote:
            return {}
        try:
            self.repository.check()
        except OSError as error:
            log.error("the repository %s cannot be read: %s", self.repository.root, error.strerror)
            return dict(before)
        found: dict[str, Seen] = {}
        left = list(self._managed)
        while left:
            name = left.pop()
            if (seen := self._look(name, before.get(name))) is None:
                continue
            found[name] = seen
            if isinstance(seen, OnDisk):
                left += [part for part in seen.parts if part not in found and part not in left]
        return found

    def has_changed(self, model: str, seen: Mapping[str, Seen]) -> bool:
        """Tell whether a model of the pool is another now than it was seen; blocks while it reads."""
        if self.repository.is_remote or model not in self._managed:
            return False
        before = seen.get(model)
        return self._look(model, before) != before

    def specs(self, seen: Mapping[str, Seen], footprints: Footprints) -> dict[str, ModelSpec]:
        """Return what the core is told of every model; those that the repository does not have are not among them."""
        names = list(self._managed) if self.repository.is_remote else list(seen)
        return {name: self._spec(name, seen.get(name), footprints) for name in names}

    def override(self, model: str, versions: tuple[int, ...]) -> str | None:
        """Return the configuration with which a load loads these versions.

        None where it does so anyway; UNSEEN where nobody but Triton can read it. Blocks while it reads; raises
        RepositoryError and OSError.
        """
        if self.repository.is_remote:
            return UNSEEN if versions else None
        seen = self.repository.look(model, versions)
        if seen is None:
            return None
        if seen.problem:
            raise RepositoryError(seen.problem)
        return seen.override

    def _look(self, name: str, before: Seen | None) -> Seen | None:
        managed = self._managed.get(name)
        try:
            return self.repository.look(name, managed.versions if managed is not None else ())
        except RepositoryError as error:
            return Broken(str(error))
        except OSError as error:
            log.error("model %s cannot be read: %s", name, error)
            return before

    def _spec(self, name: str, seen: Seen | None, footprints: Footprints) -> ModelSpec:
        managed = self._managed.get(name)
        told = managed if managed is not None else ManagedModel(name=name)
        spec = ModelSpec(
            name=name,
            footprint_bytes=told.footprint_bytes,
            idle_seconds=told.idle_seconds,
            pinned=told.pinned,
            versions=told.versions,
            callable=managed is not None,
            load_seconds=footprints.load_seconds(name),
        )
        if isinstance(seen, Broken):
            return replace(spec, stamp=hashlib.sha256(seen.why.encode()).hexdigest()[:16])
        if seen is not None and told.versions:
            # Those that are not there yet change the content when they come.
            spec = replace(
                spec, versions=tuple(each for each in told.versions if each in seen.versions) or told.versions
            )
        stamp = seen.stamp if seen is not None else ""
        parts = seen.parts if seen is not None else ()
        if (measured := footprints.measured(name, stamp)) is not None:
            return replace(spec, stamp=stamp, parts=parts, estimate_bytes=measured, estimate_from="measured")
        guess = footprints.of_another_content(name)
        if guess is None and seen is not None:
            guess = seen.estimate_bytes
        spec = replace(spec, stamp=stamp, parts=parts)
        return spec if guess is None else replace(spec, estimate_bytes=guess, estimate_from="estimated")
