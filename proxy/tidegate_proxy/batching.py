"""Short writes of one turn of the loop go out together, after everything that came in the turn is processed.

Each write can wake its peer, and runs the kernel's code between that of Python. Together they take less of both.
"""

import asyncio
from typing import Any, cast

SHORT = 4096  # Bytes that can wait. They are not counted, so longer data is written immediately.


class BatchingTransport:
    """Writes short data at the end of the turn. Any other use of the transport, except to pause and resume reading,
    writes the waiting data first."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._soon = asyncio.get_running_loop().call_soon
        self._waiting = b""
        self.pause_reading, self.resume_reading = self._transport.pause_reading, self._transport.resume_reading

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._soon(self._flush)
        self._waiting += data
        if len(self._waiting) > SHORT:
            self._flush()

    def _flush(self) -> None:
        data, self._waiting = self._waiting, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        self._flush()
        return getattr(self._transport, name)
