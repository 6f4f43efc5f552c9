"""What becomes of a registered version: deployed, promoted, rolled back, compared, verified, pruned."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

WAIT_SECONDS: Final = 300.0  # for Triton to load a version, besides the time until it looks at its repository
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with what is going on and its bytes; what it yields is called with the bytes of each piece that is done."""


def silent(_what: str, _total_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress."""
    return nullcontext(lambda _bytes: None)
