"""What bodies of calls are made of, and what is made of them."""

from collections.abc import Awaitable, Callable

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What is raised for a text that is no JSON, or is nested too deeply."""
Bytes = bytes | bytearray | memoryview
Unpacked = Callable[[bytes, int | None], Awaitable[Bytes]]
"""Returns so many first bytes of a body with this `content-encoding`, unpacked; all of them for None."""
OfVersion = Callable[[str, str | None, bool], list[Bytes]]
"""Returns the body for a model, and a version of it or None; with True it asks for what the answer does not tell
otherwise of its usage (`Target.asks_for_usage`)."""
