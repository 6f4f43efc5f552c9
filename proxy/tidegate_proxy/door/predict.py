"""`POST /predict`, as the clients of Domino's reference implementation send it.

The envelope names server, model and version; its payload is the body of a v2 inference request, and goes on as it is.
"""

from typing import TYPE_CHECKING

import msgspec

from ..paths import Target, is_name, is_version
from ..problems import Kind, Problem
from .exchange import MOST_UNSENT, Exchange
from .head import Head

if TYPE_CHECKING:
    from .door import Door


class Envelope(msgspec.Struct):
    """The body of `/predict`. An empty version leaves the choice to the traffic's shares."""

    inference_server_name: str
    model_name: str
    payload: msgspec.Raw
    model_version: str | int | None = None


_decoder = msgspec.json.Decoder(Envelope)


class Predict(Exchange):
    """Decided when the body is whole, for only that says what is asked."""

    def __init__(self, door: "Door", head: Head, started: float) -> None:
        super().__init__(door, head, started)
        self._body: bytes | bytearray = b""
        self._is_from_known = False
        """Whether more than a little is read, for it is known who sends it."""

    def _decide(self) -> None:
        if self.body_complete:  # it waited behind another request
            self._open()
        elif self.expects_continue or self.paused:
            self._later(self._let_body_come())

    async def _let_body_come(self) -> None:
        await self.door.shared.authorizer.identify(self.head.credential)
        self._is_from_known = True
        if self.body_complete or self.response_complete:  # it came without being asked for
            return
        if self.expects_continue:
            self.door.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if self.paused:
            self.sending_paused(False)
            self._gather()

    async def _explain(self, problem: Problem) -> None:
        """Tell what is wrong, to whom the proxy knows: others are first told to say who they are."""
        await self.door.shared.authorizer.identify(self.head.credential)
        raise problem

    def take_body(self, data: bytes) -> None:
        """Take a part of the envelope."""
        if self.response_complete:
            return
        self.body_bytes += len(data)
        if self.body_bytes > self.door.shared.settings.body_limit_bytes:
            self.refuse(self._too_long())
            return
        if self._body:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        else:
            self._body = data  # most are one part
        if self.body_bytes > MOST_UNSENT and not self.paused:
            if self._is_from_known:
                self._gather()
                return
            self.sending_paused(True)
            if self.door.active is self:
                self._later(self._let_body_come())

    def end_body(self) -> None:
        """Open the envelope, when it is this request's turn."""
        self.body_complete = True
        if self.door.active is self and not self.response_complete:
            try:
                self._open()
            except Exception:
                self.met_defect()

    def _open(self) -> None:
        """Open the envelope, and go on as for a request to the model's own address."""
        try:
            envelope = _decoder.decode(self._body)
            self.target = _target(envelope)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            self._later(self._explain(Problem(Kind.MALFORMED, f"The body of /predict is no envelope: {error}.")))
            return
        except Problem as problem:
            self._later(self._explain(problem))
            return
        finally:
            self._body = b""
        self.chunked = False
        self.length = len(bytes(envelope.payload))
        self._out.append(bytes(envelope.payload))
        super()._decide()


def _target(envelope: Envelope) -> Target:
    for name in (envelope.inference_server_name, envelope.model_name):
        if not is_name(name):
            raise Problem(Kind.UNKNOWN, "No server or model can have such a name.")
    said = envelope.model_version
    version = None if said is None or said == "" else str(said)
    if version is not None and not is_version(version):
        raise Problem(Kind.MALFORMED, "model_version is a number from 1 of at most 16 digits, or left out.")
    return Target("infer", envelope.inference_server_name, envelope.model_name, version)
