"""The catalog of models before they are loaded: from the settings, the repository, and earlier loads."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from tidegate_contracts.eviction import EvictionSettings, ManagedModel
from tidegate_service.reasons import plain

from ..core.messages import ModelSpec
from ..staging.sources import Contents, RepositoryError
from ..triton.repository import ModelFiles, TritonRepository
from .footprints import Footprints, Measurements

log = logging.getLogger(__name__)


class Catalog:
    """The models of a pool, from the settings and their files."""

    def __init__(self, settings: EvictionSettings) -> None:
        self.repository = TritonRepository(settings.repository)
        self._managed = {model.name: model for model in settings.models}

    def look(self, before: Mapping[str, ModelFiles]) -> dict[str, ModelFiles]:
        """Return the models in the repository. Unreadable ones stay as they were before. Blocks."""
        try:
            self.repository.check()
        except OSError as error:
            log.error("the repository %s cannot be read: %s", self.repository.root, error.strerror)
            # A bucket can be unreachable for this process at its start, but reachable for the server.
            return dict(before) or ({name: ModelFiles() for name in self._managed} if self.repository.is_bucket else {})
        found: dict[str, ModelFiles] = {}
        left = list(self._managed)
        while left:
            name = left.pop()
            if (seen := self._look(name, before.get(name))) is None:
                continue
            found[name] = seen
            left += [part for part in seen.parts if part not in found and part not in left]
        return found

    def has_changed(self, model: str, seen: Mapping[str, ModelFiles]) -> bool:
        """Return whether a model of the pool has changed since it was seen. Blocks."""
        if model not in self._managed:
            return False
        before = seen.get(model)
        return self._look(model, before) != before

    def contents(self, model: str) -> Contents | None:
        """Return the files that a load of a model reads now. Blocks, raises RepositoryError and OSError."""
        return self.repository.contents(model, self._versions(model))

    def specs(self, seen: Mapping[str, ModelFiles], footprints: Footprints) -> dict[str, ModelSpec]:
        return {name: self._spec(name, files, footprints) for name, files in seen.items()}

    def _versions(self, name: str) -> tuple[int, ...]:
        return self._managed[name].versions if name in self._managed else ()

    def _look(self, name: str, before: ModelFiles | None) -> ModelFiles | None:
        try:
            return self.repository.look(name, self._versions(name))
        except RepositoryError as error:
            if before is None or before.problem != str(error):
                log.error("model %s cannot be loaded: %s", name, error)
            return ModelFiles(stamp=hashlib.sha256(str(error).encode()).hexdigest()[:16], problem=str(error))
        except OSError as error:
            log.error("model %s cannot be read: %s", name, error)
            return before

    def _spec(self, name: str, seen: ModelFiles, footprints: Footprints) -> ModelSpec:
        managed = self._managed.get(name) or ManagedModel(name=name)
        known = footprints.models.get(name) or Measurements(stamp="")
        # Versions that are missing change the content when they appear.
        versions = tuple(each for each in managed.versions if each in seen.versions) or managed.versions
        spec = ModelSpec(
            name, managed.footprint_bytes, idle_seconds=managed.idle_seconds, pinned=managed.pinned, versions=versions,
            callable=name in self._managed, load_seconds=known.load_seconds or None, stamp=seen.stamp,
            parts=seen.parts, problem=plain(seen.problem),
        )  # fmt: skip
        if known.bytes:  # The measurements of another content are an estimate.
            is_same = known.stamp == spec.stamp
            return replace(spec, estimate_bytes=max(known.bytes), estimate_from="measured" if is_same else "estimated")
        if seen.estimate_bytes is None:
            return spec
        return replace(spec, estimate_bytes=seen.estimate_bytes, estimate_from="estimated")
