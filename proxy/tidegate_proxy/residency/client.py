"""A client for the lease API of one replica's eviction policy. Its messages are in `tidegate_contracts.lease`."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError
from tidegate_contracts import lease
from tidegate_contracts.message import Message

from ..upstream.replica import Replica
from ..upstream.request import Answer, NoAnswerError, send

_NOT_LET_IN = 401, 403
log = logging.getLogger(__name__)
_answers: TypeAdapter[lease.Answer] = TypeAdapter(lease.Answer)


class PolicyError(Exception):
    """A policy gave no usable response. The text is the reason."""


class GoneError(PolicyError):
    """The policy refuses connections: its process has ended, and so it unloads nothing."""


class _LeaseOf(msgspec.Struct, rename="camel"):
    holder: str
    seconds_left: float
    in_flight: int


class Listed(msgspec.Struct, rename="camel"):
    """The part of `lease.Listed` that a proxy needs. Reading 10,000 models takes a few milliseconds."""

    model: str
    state: str
    state_seconds: float | None = None
    why: str = ""
    failed_seconds: float | None = None
    failed_why: str = ""
    versions: tuple[int, ...] = ()
    idle_seconds: float | None = None
    evictable_in: float | None = None
    leases: tuple[_LeaseOf, ...] = ()
    waiters: int = 0
    busy: int = 0
    no_room_seconds: float | None = None
    footprint_bytes: int | None = None


class Room(msgspec.Struct, rename="camel"):
    """`lease.Room`, read as fast as `Listed`."""

    policy: str
    capacity_bytes: int
    resident_bytes: int
    loading_bytes: int
    freeing_bytes: int
    leaked_bytes: int
    free_bytes: int
    pod: str = ""


class _Listing(Room, kw_only=True):
    models: list[Listed]


@dataclass(frozen=True, slots=True)
class Listing:
    """Every model as a policy sees it, by name, with the memory in use and the Unix time of the listing."""

    models: Mapping[str, Listed]
    room: Room
    at: float


class LeaseToken:
    """This pod's token for eviction policies, in a file that the kubelet replaces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = b""

    def header(self) -> bytes:
        """Return the header line with the token. It is empty if there is no token."""
        try:
            self._header = b"authorization: Bearer %b\r\n" % self._path.read_bytes().strip()
        except FileNotFoundError:
            self._header = b""
        except OSError as error:
            log.warning("the token for eviction policies cannot be read: %s. The last one stays in use", error)
        return self._header


class LeaseClient:
    """A client for one replica's lease API. Concurrent calls use separate connections."""

    def __init__(
        self, replica: Replica, port: int, host: str, connect_seconds: float, authorization: Callable[[], bytes] = bytes
    ) -> None:
        self._server = Replica(replica.family, (replica.address[0], port, *replica.address[2:]))
        self._host = f"{host}:{port}".encode()
        self._connect_seconds = connect_seconds
        self._authorization = authorization

    async def acquire(self, message: lease.Acquire) -> lease.Answer:
        """Request a lease, and wait for as long as the policy does. Raises PolicyError."""
        answer = await self._send(b"POST", lease.ACQUIRE_PATH, message)
        try:
            return _answers.validate_json(answer.body)
        except ValidationError:
            raise _unreadable(answer) from None

    async def renew(self, message: lease.Renew, seconds: float) -> lease.Renewed:
        """Renew leases, and return the resident models. Raises PolicyError, also without a response in `seconds`."""
        answer = await self._send(b"POST", lease.RENEW_PATH, message, seconds)
        try:
            return lease.Renewed.model_validate_json(answer.body)
        except ValidationError:
            raise _unreadable(answer) from None

    async def release(self, message: lease.Release, seconds: float) -> None:
        """Give leases back. After PolicyError, it is unknown whether they were."""
        answer = await self._send(b"POST", lease.RELEASE_PATH, message, seconds)
        if answer.status >= 300:
            raise _unreadable(answer)

    async def listing(self, seconds: float) -> Listing:
        """Return every model as the policy sees it. Raises PolicyError."""
        answer = await self._send(b"GET", lease.MODELS_PATH, None, seconds)
        try:
            found = msgspec.json.decode(answer.body, type=_Listing)
        except msgspec.MsgspecError:
            raise _unreadable(answer) from None
        room = msgspec.convert(found, Room, from_attributes=True)
        return Listing({each.model: each for each in found.models}, room, time())

    def close(self) -> None:
        """Close idle connections now, and busy ones after their call."""
        self._server.close()

    async def _send(self, method: bytes, path: str, message: Message | None, seconds: float | None = None) -> Answer:
        body = b"" if message is None else message.model_dump_json(by_alias=True, exclude_none=True).encode()
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\n%b" % (method, path.encode(), self._host, self._authorization())
        data = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        try:
            async with asyncio.timeout(seconds):
                return await self._send_once_or_twice(data)
        except TimeoutError:
            raise PolicyError("it does not respond") from None

    async def _send_once_or_twice(self, data: bytes) -> Answer:
        if (kept := self._server.take(monotonic())) is not None:
            try:
                return await send(self._server, kept, data)
            except NoAnswerError:
                pass  # the policy may have closed the idle connection just then, and every call can be repeated
        try:
            connection = await self._server.connect(self._connect_seconds)
            return await send(self._server, connection, data)
        except ConnectionRefusedError:
            raise GoneError("its port refuses connections") from None
        except (OSError, NoAnswerError) as error:
            raise PolicyError(str(error) or type(error).__name__) from None


def _unreadable(answer: Answer) -> PolicyError:
    if answer.status in _NOT_LET_IN:
        return PolicyError(f"it refuses this proxy's token ({answer.status}): see its log")
    body: Any = answer.body[:200].decode(errors="replace")
    return PolicyError(f"its response {answer.status} {body!r} is not a message of the lease API")
