"""Triton as one kind of inference server: see `tidegate.kinds.Kind`, which this fulfils.

What a method needs is imported when it runs: protobuf and gRPC take longer to import than most commands run.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..findings import Finding

if TYPE_CHECKING:
    from ..publishing import Repository
    from .entries.show import Shown
    from .entries.write import NewEntry


class TritonKind:
    """Entries are folders of a Triton model repository: `config.pbtxt` and a folder for each version."""

    def make(self, name: str, sources: Sequence[Path], parent: Path, settings: Any = None) -> "NewEntry":
        """Make an entry; `settings` is a `ModelConfig`."""
        from .entries.write import new_entry

        return new_entry(name, sources, parent, settings=settings)

    def check(
        self,
        folder: Path,
        name: str | None = None,
        *,
        backends: Collection[str] | None = None,
        gpu: bool | None = None,
    ) -> list[Finding]:
        """Return what Triton would refuse or ignore."""
        from .entries.checks import check_entry
        from .entries.entry import read_entry

        return check_entry(read_entry(folder, name), backends=backends, gpu=gpu)

    def show(self, folder: Path) -> "Shown":
        """Describe an entry by its `config.pbtxt` and its files."""
        from .entries.show import show_entry

        return show_entry(folder)

    def open_repository(self, where: Path | str) -> "Repository":
        """Open a model repository in a folder or in object storage."""
        from ..publishing import open_repository

        return open_repository(where)
