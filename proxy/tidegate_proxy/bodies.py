"""Types of the bodies of calls."""

from collections.abc import Awaitable, Callable

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""Errors of a decoder for text that is not JSON, or is nested too deeply."""
Bytes = bytes | bytearray | memoryview
Unpacked = Callable[[bytes, int | None], Awaitable[Bytes]]
"""Returns the first bytes of a body with this `content-encoding`, decompressed. With None, returns all of them."""
OfVersion = Callable[[str, str | None, bool], list[Bytes]]
"""Returns the body for a model and a version or None. With True, the body also requests the usage, which the response
would not report otherwise (`Target.requests_usage`)."""
