"""Errors with one message (what, where, why, what to do) and an exit code."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Self


class ExitCode(IntEnum):
    """The exit codes of `tidegate` and their meanings. They are stable: programs may rely on them."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    OK = 0, "done"
    FOUND = 1, "a check found a problem, or the command failed"
    USAGE = 2, "invalid input"
    REFUSED = 3, "a rule forbids it"
    BUSY = 4, "another run is in progress, or the server is busy: try again later"
    NOT_FOUND = 5, "not found"
    UNREACHABLE = 6, "a service, or an engine (Helm, Pulumi), is missing, unreachable or failed"
    INTEGRITY = 7, "content is damaged, changed or unsafe"
    UNFINISHED = 8, "incomplete: run the same command again to continue"
    STOPPED = 130, "Ctrl-C"


class TidegateError(Exception):
    """The base of all errors that the client raises. `str()` is the whole message."""

    exit_code = ExitCode.FOUND

    def __init__(self, what: str, *, where: str | Path = "", why: str = "", do: str = "") -> None:
        """Set the parts of the message. `where` is a file with its line, or an address. `do` is the remedy."""
        self.what, self.where, self.why, self.do = what, str(where), why, do
        super().__init__(message(f"{where}: {what}" if where else what, why, do))


class UsageError(TidegateError):
    """An argument, a setting or an input is invalid."""

    exit_code = ExitCode.USAGE


class RefusedError(TidegateError):
    """A rule forbids the operation."""

    exit_code = ExitCode.REFUSED


class BusyError(TidegateError):
    """Another process is changing the same thing, or the server is busy."""

    exit_code = ExitCode.BUSY

    def __init__(self, what: str, *, retry_after: float | None = None, **more: Any) -> None:
        """Set `retry_after`, the seconds after which a retry is useful, if the server sent them."""
        super().__init__(what, **more)
        self.retry_after = retry_after


class NotFoundError(TidegateError):
    """A named thing (a model, a version, a file, …) does not exist."""

    exit_code = ExitCode.NOT_FOUND


class UnreachableError(TidegateError):
    """A service is unreachable or failed."""

    exit_code = ExitCode.UNREACHABLE


class LoadFailedError(UnreachableError):
    """The model cannot be loaded. A retry does not help."""


class IntegrityError(TidegateError):
    """Content differs from what was registered, or is unsafe."""

    exit_code = ExitCode.INTEGRITY


class UnfinishedError(TidegateError):
    """An operation is incomplete. The served versions are unchanged."""

    exit_code = ExitCode.UNFINISHED


def message(what: str, why: str, do: str) -> str:
    """Format a message on one to three lines."""
    return what + "".join(f"\n  {name}: {text}" for name, text in (("why", why), ("do", do)) if text)


def hints_once(messages: Iterable[str]) -> Iterator[str]:
    """Yield messages. If several share their `why` and `do` lines, only the first shows them."""
    hints_seen = set()
    for text in messages:
        what, _, hints = text.partition("\n")
        yield what if hints in hints_seen else text
        hints_seen.add(hints)


def install(extra: str) -> str:
    """Return the command that installs an extra of the client from a checkout."""
    return f'pip install "./client[{extra}]" in a checkout of Tidegate'
