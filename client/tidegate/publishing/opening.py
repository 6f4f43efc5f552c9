"""Opens a model repository, whichever kind it is."""

from pathlib import Path

from .repository import Repository


def open_repository(where: Path | str) -> Repository:
    """Return the repository in a folder, or at a URL (`s3://`, `gs://`, `as://`, as Triton writes them)."""
    # Imported here: obstore is some MB, which who publishes to a folder has no use for.
    if isinstance(where, str) and "://" in where:
        from .objects import ObjectRepository

        return ObjectRepository(where)
    from .folder import FolderRepository

    return FolderRepository(Path(where))
