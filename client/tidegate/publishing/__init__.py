"""Publishes versions to a model repository atomically, with one publisher at a time.

    <repository>/<model>/<CONFIG>        which versions are served
                        /7/…             version 7: the version directory of its entry
                        /7/.entry/…      the rest of the entry, as registered
                        /7/.manifest.json

`Configs` generates the configuration. A version's files never change. The configuration that lists it is written last,
so no server reads the version before. A new model first gets a configuration that makes servers load nothing.
"""

from pathlib import Path

from ..repository import Configs
from .repository import Repository
from .stores import FolderStore, ObjectStore

__all__ = ["Repository", "open_repository"]


def open_repository(where: Path | str, configs: Configs) -> Repository:
    """Return the repository in a directory, or at a URL (`s3://`, `gs://`, `as://`, as Triton writes them)."""
    is_url = isinstance(where, str) and "://" in where
    return Repository(ObjectStore(str(where)) if is_url else FolderStore(Path(where)), configs)
