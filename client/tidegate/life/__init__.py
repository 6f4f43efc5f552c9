"""Operations on registered versions: deploy, promote, roll back, undeploy, verify, prune."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

WAIT_SECONDS: Final = 300.0  # for Triton to load a version, in addition to its poll interval
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with a description and the total bytes. Yields a function that takes the bytes of each finished piece."""


def silent(_what: str, _total_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress."""
    return nullcontext(lambda _bytes: None)
