"""A model repository, and how versions get into it: whole or not at all, and never while anybody else is at it.

    <repository>/<model>/<CONFIG>        computed by the kind's `Configs`: which versions are served
                        /7/…             version 7: the version folder of its entry, and in
                        /7/.entry/…      all else of it, as it was registered
                        /7/.manifest.json

A version's folder comes by one rename, never changes, and goes by one rename; the configuration comes last.
"""

from pathlib import Path

from ..repository import Configs, Repository


def open_repository(where: Path | str, configs: Configs) -> Repository:
    """Return the repository in a folder, or at a URL (`s3://`, `gs://`, `as://`, as Triton writes them)."""
    # Imported here: obstore is some MB, of no use for a folder.
    if isinstance(where, str) and "://" in where:
        from .objects import ObjectRepository

        return ObjectRepository(where, configs)
    from .folder import FolderRepository

    return FolderRepository(Path(where), configs)
