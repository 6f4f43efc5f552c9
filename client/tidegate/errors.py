"""Errors that people see: one message that says what, where, why, and what to do; and the exit code of each kind."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Self


class ExitCode(IntEnum):
    """How `tidegate` ends, and what it means. Stable: programs may rely on them."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make one of a number and what it means."""
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    OK = 0, "done"
    FOUND = 1, "a check found something, or it could not be done"
    USAGE = 2, "wrong input"
    REFUSED = 3, "a rule does not allow it"
    BUSY = 4, "another run is at it, or the server is busy: try again later"
    NOT_FOUND = 5, "there is no such thing"
    UNREACHABLE = 6, "something cannot be reached, or fails"
    INTEGRITY = 7, "content is not what it should be"
    UNFINISHED = 8, "stopped half way: the same command goes on from there"
    STOPPED = 130, "Ctrl-C"


class TidegateError(Exception):
    """The base of all errors that the client raises itself; `str()` is the whole message."""

    exit_code = ExitCode.FOUND

    def __init__(self, what: str, *, where: str | Path = "", why: str = "", do: str = "") -> None:
        """Say what is wrong, where (a file and its line, an address), why, and what to do about it."""
        self.what, self.where, self.why, self.do = what, str(where), why, do
        super().__init__(message(f"{where}: {what}" if where else what, why, do))


class UsageError(TidegateError):
    """An argument, a setting or an input is wrong."""

    exit_code = ExitCode.USAGE


class RefusedError(TidegateError):
    """A rule forbids what was asked for."""

    exit_code = ExitCode.REFUSED


class BusyError(TidegateError):
    """Another process works on the same, or the server is busy."""

    exit_code = ExitCode.BUSY

    def __init__(self, what: str, *, retry_after: float | None = None, **more: Any) -> None:
        """Make the error; `retry_after`: seconds after which another try is worth it, where that was said."""
        super().__init__(what, **more)
        self.retry_after = retry_after


class NotFoundError(TidegateError):
    """What is named (a model, a version, a file, …) does not exist."""

    exit_code = ExitCode.NOT_FOUND


class UnreachableError(TidegateError):
    """Something cannot be reached, or fails."""

    exit_code = ExitCode.UNREACHABLE


class LoadFailedError(UnreachableError):
    """The model cannot be loaded, and trying again does not help."""


class IntegrityError(TidegateError):
    """Content is not what it should be."""

    exit_code = ExitCode.INTEGRITY


class UnfinishedError(TidegateError):
    """An operation stopped half way; what served before serves on."""

    exit_code = ExitCode.UNFINISHED


def message(what: str, why: str, do: str) -> str:
    """Return what people read, on one to three lines."""
    return what + "".join(f"\n  {name}: {text}" for name, text in (("why", why), ("do", do)) if text)


def hints_once(messages: Iterable[str]) -> Iterator[str]:
    """Yield messages; why and what to do, where several say the same of that, stand below the first of them only."""
    hints_seen = set()
    for text in messages:
        what, _, hints = text.partition("\n")
        yield what if hints in hints_seen else text
        hints_seen.add(hints)


def install(extra: str) -> str:
    """Return how the client comes to have one of its extras; it is installed from a checkout."""
    return f'pip install "./client[{extra}]" in a checkout of Tidegate'
