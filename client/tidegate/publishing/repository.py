"""A model repository as Triton reads it, and how versions get into it: see this package's docstring."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tidegate_contracts.manifest import Manifest, is_inside

from ..errors import IntegrityError, NotFoundError, RefusedError, UsageError
from ..names import RULE, is_name
from .config import CONFIG, read_published

Progress = Callable[[int], None]
"""Told how many bytes more are done, by several threads at once."""
READ_LIMIT: Final = 16 << 20
"""Bytes that `read` returns at most: it is for configurations and labels."""
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, order=True)
class StoredFile:
    """One file that lies in the repository."""

    path: str
    """Below the model's folder."""
    size: int
    """Bytes."""


class Repository(Protocol):
    """One model repository. Every method may raise UnreachableError, and IntegrityError for links and special files."""

    @property
    def where(self) -> str:
        """Its folder or its URL."""

    def models(self) -> list[str]:
        """Return the names of its models."""

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending; none where there is no such model."""

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file; raises NotFoundError."""

    def read(self, model: str, path: str, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a small file; raises NotFoundError, and IntegrityError where it is larger."""
        parts = []
        for chunk in self.chunks(model, path):
            parts.append(chunk)
            if (limit := limit - len(chunk)) < 0:
                raise IntegrityError(f"the file {path} of model {model} is larger than it can be", where=self.where)
        return b"".join(parts)

    def config(self, model: str) -> str | None:
        """Return the model's config.pbtxt, if it has one."""
        try:
            return self.read(model, CONFIG).decode("utf-8", "replace")
        except NotFoundError:
            return None

    def config_age(self, model: str) -> float:
        """Return the seconds since config.pbtxt was written, by this machine's clock; raises NotFoundError."""

    def lock(self, model: str, who: str) -> AbstractContextManager[None]:
        """Be the only one to change a model; raises BusyError, which tells who is at it and since when.

        It is free again when the holder's process dies, at once in a folder where flock works, else when its lease has
        not been renewed for a minute at the most. Everything below needs it.
        """

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return a folder to fetch the entry of a version into; what a killed run fetched is still in it.

        Raises UnfinishedError where `size` bytes do not fit.
        """

    def publish(
        self,
        model: str,
        number: int,
        staged: Path,
        manifest: Manifest,
        config: str,
        progress: Progress | None = None,
    ) -> bool:
        """Bring a version in, once every byte of it has proved right, and then its configuration (`write_config`).

        False where it was there already, with the same content; raises IntegrityError for other content.
        """

    def write_config(self, model: str, config: str) -> None:
        """Bring in a configuration that `published_config` made: first what it needs, then itself.

        Writes nothing where all is so already. Raises NotFoundError for versions that are not there.
        """

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version; raises RefusedError while the configuration needs it."""

    def withdraw(self, model: str) -> None:
        """Have Triton serve nothing of a model, and leave its files: some may be being loaded."""

    def remove_model(self, model: str) -> None:
        """Remove a model with all its versions."""


def checked_model(model: str) -> str:
    """Return a model's name that is one, and no way to other places; raises UsageError."""
    if not is_name(model):
        raise UsageError(f"{model!r} is no name for a model", do=RULE)
    return model


def checked_path(path: str) -> str:
    """Return a path that stays below the model's folder; raises UsageError."""
    if not is_inside(path):
        raise UsageError(f"the path {path!r} does not stay within the model's folder")
    return path


def check_removable(repository: Repository, model: str, number: int) -> None:
    """Raise RefusedError for a version that Triton may serve, or that the configuration comes from."""
    if (config := repository.config(model)) is None:
        return
    published = read_published(config)
    if number in published.served:
        why = "it is served"
    elif number == published.owner:
        why = "the configuration comes from it"
    elif published.owner is None:
        why = "tidegate did not write the configuration, so Triton may serve it"
    else:
        return
    raise RefusedError(f"version {number} of model {model} cannot be removed: {why}", where=repository.where)


def version_number(name: str) -> int | None:
    """Return the number of a version's folder; None for names that Triton does not take for versions."""
    return int(name) if _NUMBER.fullmatch(name) else None
