"""Errors that people see: one message that says what, where, why, and what to do; and the exit code of each kind."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How `tidegate` ends. Stable: programs may rely on them."""

    OK = 0
    FOUND = 1
    """A check, a comparison or a verification found something."""
    USAGE = 2
    """What was given is wrong: an option, a file, a name."""
    REFUSED = 3
    """A rule of the environment does not allow it, or the credential does not."""
    BUSY = 4
    """Another process works on the same, or the server is busy: try again later."""
    NOT_FOUND = 5
    """There is no such model, version, alias or environment."""
    UNREACHABLE = 6
    """The registry, the repository or a proxy cannot be reached, or fails."""
    INTEGRITY = 7
    """Content is not what its manifest or its signature says."""
    UNFINISHED = 8
    """It stopped half way, and what served before serves on: the same command goes on from there."""
    STOPPED = 130
    """Ctrl-C."""


class TidegateError(Exception):
    """The base of all of them; `str()` is the whole message."""

    exit_code = ExitCode.FOUND

    def __init__(self, what: str, *, where: str = "", why: str = "", do: str = "") -> None:
        """Say what is wrong, where (a file and its line, an address), why, and what to do about it."""
        self.what, self.where, self.why, self.do = what, where, why, do
        message = f"{where}: {what}" if where else what
        if why:
            message += f"\n  why: {why}"
        if do:
            message += f"\n  do: {do}"
        super().__init__(message)


class UsageError(TidegateError):
    """What was given is wrong."""

    exit_code = ExitCode.USAGE


class RefusedError(TidegateError):
    """A rule does not allow it."""

    exit_code = ExitCode.REFUSED


class BusyError(TidegateError):
    """Another process works on the same, or the server is busy."""

    exit_code = ExitCode.BUSY

    def __init__(self, what: str, *, retry_after: float | None = None, **more: str) -> None:
        """The same; `retry_after` is the seconds after which it is worth another try, where that was said."""
        super().__init__(what, **more)
        self.retry_after = retry_after


class NotFoundError(TidegateError):
    """There is no such thing."""

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
    """It stopped half way; what served before serves on."""

    exit_code = ExitCode.UNFINISHED


def install(extra: str) -> str:
    """Return how the client comes to have one of its extras; it is installed from a checkout."""
    return f'pip install "./client[{extra}]" in a checkout of Tidegate'
