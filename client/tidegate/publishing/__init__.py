"""A model repository, and how versions get into it: whole or not at all, by one publisher at a time.

    <repository>/<model>/<CONFIG>        computed by the kind's `Configs`: which versions are served
                        /7/…             version 7: the version folder of its entry, and in
                        /7/.entry/…      all else of it, as it was registered
                        /7/.manifest.json

A version's files never change. The configuration that names it comes last: before that no server looks at it. A new
model first has a configuration that lets servers load nothing.
"""

from pathlib import Path

from ..repository import Configs
from .repository import Repository
from .stores import FolderStore, ObjectStore

__all__ = ["Repository", "open_repository"]


def open_repository(where: Path | str, configs: Configs) -> Repository:
    """Return the repository in a folder, or at a URL (`s3://`, `gs://`, `as://`, as Triton writes them)."""
    is_url = isinstance(where, str) and "://" in where
    return Repository(ObjectStore(str(where)) if is_url else FolderStore(Path(where)), configs)
