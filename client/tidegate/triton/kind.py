"""Triton as one kind of inference server: see `tidegate.kinds.Kind`, which this fulfils.

What a method needs is imported when it runs: protobuf and gRPC take longer to import than most commands run.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..findings import Finding

if TYPE_CHECKING:
    from ..repository import Configs, Repository
    from .entries.show import Shown


class TritonKind:
    """Entries are folders of a Triton model repository: `config.pbtxt` and a folder for each version."""

    def recognises(self, folder: Path) -> bool:
        """Tell whether there is a `config.pbtxt`, or a version's folder."""
        from .entries.entry import is_entry

        return folder.is_dir() and any(map(is_entry, self.entries_in(folder)))

    def entries_in(self, folder: Path) -> list[Path]:
        """Return the folder itself, or those in it when it is a model repository."""
        from .entries.entry import entries_in

        return entries_in(folder)

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

    def tensors(self, folder: Path) -> tuple[dict[str, bool], list[str]]:
        """Return the inputs of an entry, with whether each is optional, and its outputs."""
        from .entries.entry import read_entry

        config = read_entry(folder).config
        if config is None:
            return {}, []
        return {each.name: bool(each.optional) for each in config.input}, [each.name for each in config.output]

    def show(self, folder: Path) -> "Shown":
        """Describe an entry by its `config.pbtxt` and its files."""
        from .entries.show import show_entry

        return show_entry(folder)

    def open_repository(self, where: Path | str) -> "Repository":
        """Open a model repository in a folder or in object storage."""
        from .publishing import open_repository

        return open_repository(where)

    @property
    def configs(self) -> "Configs":
        """The configuration that Triton reads beside the versions of a model."""
        from .publishing import config

        return config

    def check_staged(
        self,
        staged: Path,
        model: str,
        repository: "Repository",
        *,
        backends: Collection[str] | None = None,
        gpu: bool | None = None,
    ) -> list[Finding]:
        """Check an entry that was fetched; an ensemble's steps must be in the repository."""
        from .fitting import check_staged

        return check_staged(staged, model, repository, backends, gpu)

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return the backend of an entry that runs on GPUs only."""
        from .fitting import needs_gpu

        return needs_gpu(entry_config)

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        """Check that Triton's one configuration for all versions of a model fits both."""
        from .fitting import check_beside

        return check_beside(old_config, new_config, old, new)
