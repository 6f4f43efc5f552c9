"""The folders of weights that engines load: of a model, or of its version, where it has versions."""

import os
from collections.abc import Iterable
from pathlib import Path

from ..server import ModelFiles
from ..staging.sources import FolderSource


class WeightsRepository:
    """A folder of models; what is no path lies where only the engine reads it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.is_remote = not root.startswith("/")

    def check(self) -> None:
        """Raise OSError when the folder itself is not there."""
        if not self.is_remote:
            os.scandir(self.root).close()

    def look(self, model: str, wanted: Iterable[int] = ()) -> ModelFiles | None:
        """Return a model as it lies there, of one version or none; its weights take in memory what they do on disk."""
        versions = tuple(sorted(wanted))
        folder = Path(self.root, model, *map(str, versions[:1]))
        if self.is_remote or model in ("", ".", "..") or "/" in model or not folder.is_dir():
            return None
        listing = FolderSource(folder).listing()
        return ModelFiles(versions, listing.stamp(), (), sum(file.size for file in listing.files))

    def contents(self, _model: str, _wanted: Iterable[int] = ()) -> None:
        """Return None: nothing of it is staged."""
