"""Reads a caller's messages as they arrive, and checks that no later field contradicts the fields that route them.

A message is five bytes (a flag and its length), then protobuf. The proxy refuses compressed messages. The fields that
route a message (name, version, parameters) come before the tensors, as every protobuf library writes them. The proxy
refuses a message that has one of them later or twice, because the inference server would use the last one.
"""

from dataclasses import dataclass

from ..problems import Problem, ProblemType
from ..targets import is_name
from .protobuf import BYTES, VARINT, MalformedError, field_at, fields, last, number_at, text

MOST_HEAD = 64 * 1024  # Bytes of the fields before a message's tensors.
MOST_FIELDS = 10_000  # Fields of a message. The proxy reads the header of each one, but not its value.
_NAME, _VERSION, _ID, _PARAMETERS = range(1, 5)
_SEQUENCE = b"sequence_id"
_SIGNED, _TEXT, _UNSIGNED = 2, 3, 5  # Fields of InferParameter.


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """The model that a message requests, and its version if the message names one."""

    model: str
    version: str | None
    sequence: bytes = b""  # The sequence ID as text, as over HTTP. Empty without a sequence (IDs 0 and "" mean none).


class MessageReader:
    """Reads the messages of one call. Call `feed`, then `requested` and `take` in turn until there is no more. `limit`
    is the maximum size of a message in bytes. With `whole`, messages are short and read completely first."""

    __slots__ = (
        "_at", "_carry", "_count", "_fields", "_length", "_limit", "_plain", "_raw", "_requested", "_sent_head",
        "_skip", "_version_at", "_whole", "missing",
    )  # fmt: skip

    def __init__(self, limit: int, whole: bool) -> None:
        self._limit = limit
        self._whole = whole
        self._raw = b""
        self._begin()

    def _begin(self) -> None:
        self._length = -1
        self.missing = 0  # Bytes of the current message that are still to come.
        self._plain = b""
        self._at = 0
        self._fields: list[tuple[int, int, int, int, int]] = []
        """The fields before the tensors: the position of each, then the result of `field_at`."""
        self._skip = 0
        self._carry = b""
        self._count = 0
        self._requested: RequestedModel | None = None
        self._version_at: tuple[int, int] = (0, 0)
        self._sent_head = False

    @property
    def between(self) -> bool:
        """Whether the last message was taken and the next one has not begun."""
        return self._length < 0

    @property
    def idle(self) -> bool:
        return self._length < 0 and not self._raw

    @property
    def held_bytes(self) -> int:
        """Bytes of the current message that were not taken."""
        times = 1 if self._requested is not None else 2  # A head that grows in small parts fragments the memory.
        return times * len(self._plain)

    def drop(self) -> None:
        """Free the data, because the call has ended but may be referenced for a while."""
        if not self.idle:
            self._raw = b""
            self._begin()

    def feed(self, data: bytes) -> None:
        """Add received data. Raises Problem."""
        self._raw = self._raw + data if self._raw else data
        self._pull()

    def requested(self) -> RequestedModel | None:
        """Return the model that the current message requests, or None until that was received. Raises Problem."""
        if self._length < 0 and (not self._raw or not self._pull()):
            return None
        if self._requested is None:
            try:
                if self._read_head():
                    self._requested = self._understood()
            except MalformedError as error:
                raise Problem(ProblemType.MALFORMED, f"The message is not valid protobuf: {error}.") from None
        return self._requested

    def take(self, version: str | None) -> bytes:
        """Return the received part of the current message, with `version` inserted. Raises Problem."""
        assert self._requested is not None
        data = self._plain
        try:
            if not self._sent_head:
                data = self._head(version)
            else:
                self._follow(data)
        except MalformedError as error:
            raise Problem(ProblemType.MALFORMED, f"The message is not valid protobuf: {error}.") from None
        self._plain = b""
        if not self.missing:
            if self._skip or self._carry:
                why = "The message is not valid protobuf: it ends within a field."
                raise Problem(ProblemType.MALFORMED, why)
            self._begin()
        return data

    def _pull(self) -> bool:
        """Move received data into the current message. Return whether there is one."""
        raw = self._raw
        if self._length < 0:
            if len(raw) < 5:
                return False
            length = int.from_bytes(raw[1:5])
            if length > (most := MOST_HEAD if self._whole else self._limit):
                raise Problem(ProblemType.TOO_LONG, f"The message is too large: the limit is {most} bytes.")
            if raw[0]:
                why = "The message is compressed, but there is no `grpc-encoding` header. Send it uncompressed."
                raise Problem(ProblemType.MALFORMED, why)
            self._length = self.missing = length
            raw = raw[5:]
        part = raw[: self.missing]
        self._raw = raw[len(part) :]
        self.missing -= len(part)
        self._plain = self._plain + part if self._plain else part
        return True

    def _read_head(self) -> bool:
        """Parse the fields before the tensors. Return whether all of them were received."""
        plain = self._plain
        more = bool(self.missing)
        while self._at < len(plain) or more:
            found = field_at(plain, self._at)
            if found is not None:
                number, _, _, end = found
                if number > _PARAMETERS and not self._whole:
                    break
                if end <= len(plain):
                    self._fields.append((self._at, *found))
                    self._at = end
                    self._count_field()
                    continue
            if not more:
                raise MalformedError("it ends within a field")
            if len(plain) > MOST_HEAD:
                raise _too_much()
            return False
        if self._at > MOST_HEAD:
            raise _too_much()
        return True

    def _understood(self) -> RequestedModel:
        plain, sequence = self._plain, b""
        found: dict[int, bytes] = {}
        for at, number, wire, start, end in self._fields:
            if wire == BYTES and number in (_NAME, _VERSION):
                if number in found:
                    what = "name" if number == _NAME else "version"
                    why = f"The message sets the model's {what} twice."
                    raise Problem(ProblemType.MALFORMED, why)
                found[number] = plain[start:end]
                if number == _VERSION or _VERSION not in found:
                    self._version_at = at if number == _VERSION else end, end
            elif wire == BYTES and number == _PARAMETERS and not self._whole and last(plain[start:end], 1) == _SEQUENCE:
                sequence = _sequence(plain[start:end])
        return RequestedModel(_model(found.get(_NAME, b"")), _version(found.get(_VERSION, b"")), sequence)

    def _head(self, version: str | None) -> bytes:
        plain, (start, end) = self._plain, self._version_at
        field = text(_VERSION, version.encode()) if version else b""
        self._follow(plain[self._at :])
        self._sent_head = True
        return b"".join(
            (b"\0", (self._length - (end - start) + len(field)).to_bytes(4), plain[:start], field, plain[end:])
        )

    def _follow(self, data: bytes) -> None:
        """Check that no later field names another model, version or sequence."""
        at = self._skip
        if self._carry:
            data = self._carry + data
            self._carry = b""
        while at < len(data):
            found = field_at(data, at)
            if found is None:
                self._carry = data[at:]
                at = len(data)
                break
            number, _, _, end = found
            if number in (_NAME, _VERSION, _PARAMETERS):
                why = "A message must have its model, version and parameters before its tensors."
                raise Problem(ProblemType.MALFORMED, why)
            self._count_field()
            at = end
        self._skip = at - len(data)

    def _count_field(self) -> None:
        self._count += 1
        if self._count > MOST_FIELDS:
            raise Problem(ProblemType.TOO_LONG, f"The message has too many fields: the limit is {MOST_FIELDS}.")


def _too_much() -> Problem:
    why = f"The fields before the tensors are too large: the limit is {MOST_HEAD} bytes."
    return Problem(ProblemType.MALFORMED, why)


def _model(name: bytes) -> str:
    text = name.decode("latin-1")
    if name and not is_name(text):
        raise Problem(ProblemType.UNKNOWN, "The model's name is not valid.")
    return text


def _sequence(entry: bytes) -> bytes:
    """Return the sequence ID in an entry of `parameters`: int64_param, string_param or uint64_param."""
    found = b""
    value = last(entry, 2) or b""
    for field, wire, start, end in fields(value):
        if (field, wire) == (_TEXT, BYTES):
            found = value[start:end]
        elif wire == VARINT and field in (_SIGNED, _UNSIGNED):
            number = number_at(value, start)
            if field == _SIGNED and number >> 63:
                number -= 1 << 64
            found = b"%d" % number if number else b""
    return found


def _version(version: bytes) -> str | None:
    if not version:
        return None
    if not version.isdigit() or version[:1] == b"0" or len(version) > 16:
        raise Problem(ProblemType.MALFORMED, "A model's version must be a number from 1, or empty.")
    return version.decode()
