"""Names every change to a repository, so that tests can stop a publisher before and after each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watch = Callable[[str, str], None]  # called with `before` or `after`, and the step's name
_watch: Watch | None = None


def watch(watcher: Watch | None = None) -> None:
    """Call a function at each step. Its exceptions are raised there."""
    global _watch
    _watch = watcher


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name one change to a repository."""
    if _watch:
        _watch("before", name)
    yield
    if _watch:
        _watch("after", name)
