"""A call at its replica: messages are sent there, and the answer is handed to the caller's response as it comes."""

from collections.abc import Callable, Sequence

from ..forwarding import Forwarding, no_whole_answer
from ..http2.frames import CANCEL
from ..http2.headers import literal
from ..http2.sending import Stream
from .deadline import Deadline
from .metadata import ResponseHeaders
from .response import Response
from .status import STATUS_200
from .upstreams import UpstreamConnection

UNKNOWN = 2
DEADLINE_EXCEEDED = 4
MOST_KEPT = 256 * 1024
"""Bytes of a request that are kept until its answer begins, to send them to another replica if this one refuses."""


class UpstreamStream(Stream):
    """What goes wrong here ends the call, and no other of the connection.

    `caller` is the caller's stream. `deadline` is moved by the messages of a `streaming` call alone. `drained` is
    called when all that was sent has left. `refused` is called with the messages that the replica did not begin to
    answer, and says whether they go elsewhere.
    """

    def __init__(
        self,
        caller: Stream,
        response: Response,
        forwarding: Forwarding,
        deadline: Deadline,
        streaming: bool,
        drained: Callable[[], None],
        refused: Callable[[Sequence[bytes | bytearray]], bool],
    ) -> None:
        self._caller = caller
        self._response = response
        self._forwarding = forwarding
        self._deadline = deadline
        self._streaming = streaming
        self._drained = drained
        self._refused = refused
        self._kept: list[bytes | bytearray] | None = None if streaming else []
        self._kept_bytes = 0
        self._uncredited = 0
        """Bytes of the answer that wait for the caller to take what came before them."""

    # --- to the replica
    def open(self, connection: UpstreamConnection, headers: bytes, messages: Sequence[bytes | bytearray]) -> None:
        """Begin with these headers, and messages that another replica has refused."""
        connection.open(self, headers)
        for data in messages:
            self.send(data, False)

    def send(self, data: bytes | bytearray, end: bool) -> None:
        """Send a part of a message; `end`: it is the last."""
        if self._kept is not None:
            self._kept.append(data)
            self._kept_bytes += len(data)
            if self._kept_bytes > MOST_KEPT:
                self._kept = None
        self.connection.send_data(self, data, end)
        if self._streaming:
            self._deadline.message_sent()

    def end_messages(self) -> None:
        """Send that there are no more messages, unless that was sent."""
        if not self.local_closed:
            self.connection.send_data(self, b"", True)

    def cancel(self) -> None:
        """Give the call up, if it has not ended."""
        if not (self.local_closed and self.remote_closed):
            self.connection.reset(self.number, CANCEL)

    def caller_drained(self) -> None:
        """Let more of the answer come: the caller has taken what there was."""
        if self._uncredited:
            self.connection.credit(self, self._uncredited)
            self._uncredited = 0

    def drained(self) -> None:
        """Let the caller send more."""
        self._drained()

    # --- from the replica
    def headers_received(self, headers: ResponseHeaders, end: bool) -> None:
        """Hand headers on: those before the first message, or trailers."""
        try:
            if not self._response.done:
                self._take_headers(headers, end)
        except Exception:
            self._response.defect()

    def _take_headers(self, headers: ResponseHeaders, end: bool) -> None:
        response, code = self._response, headers.grpc_status
        if not response.began:
            self._kept = None
            if end and code == DEADLINE_EXCEEDED:
                self.count_late()  # the replica's library says so, whatever else there is behind it
            else:
                self._forwarding.answered()
            if headers.status != 200:
                self._fail(f"it answered with HTTP status {headers.status}")
                return
        if not end:
            if not response.began:
                response.begin(STATUS_200 + headers.block)
        elif code is not None and not response.began and self._is_lost(code, headers):
            response.fail(self._forwarding.lost())
        elif code is None:
            response.pass_on_end(UNKNOWN, headers.block + literal(b"grpc-status", b"2"))
        else:
            response.pass_on_end(code, headers.block)

    def _is_lost(self, code: int, headers: ResponseHeaders) -> bool:
        forwarding = self._forwarding
        return forwarding.may_be_lost() and forwarding.grant.route.kind.says_lost_over_grpc(code, headers.block)

    def data_received(self, data: bytes, end: bool) -> None:
        """Hand a part of a message on."""
        response = self._response
        if response.done:
            return
        try:
            if not response.began:
                self._fail("its answer has no headers")
                return
            response.data(data)
            if self._caller.unsent_bytes:
                self._uncredited += len(data)
            else:
                self.connection.credit(self, len(data))
            if self._streaming:
                self._deadline.message_received()
            if end:
                self._fail("its answer has no status")
        except Exception:
            response.defect()

    def reset_received(self, code: int | None, processed: bool) -> None:
        """Send the call elsewhere where the replica did nothing, else tell the caller."""
        if self._response.done:
            return
        try:
            self._count_failure("reset" if processed else "refused")
            if processed or self._kept is None or not self._refused(self._kept):
                why = "it ended the connection" if code is None else f"it gave the call up with code {code}"
                self._response.fail(no_whole_answer(why))
        except Exception:
            self._response.defect()

    # --- failures
    def count_late(self) -> None:
        """Count an answer that did not come in time, unless only the caller would wait no longer."""
        if self._deadline.is_own:
            self._count_failure("timeout")

    def _fail(self, reason: str) -> None:
        self._count_failure("malformed")
        self._response.fail(no_whole_answer(reason))

    def _count_failure(self, how: str) -> None:
        if (replica := self._forwarding.replica) is not None:
            self._forwarding.count_failure(replica, how)
