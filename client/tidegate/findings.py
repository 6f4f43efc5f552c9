"""What a check finds: what is wrong, where, why, and what to do about it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypedDict

from .errors import message


class Severity(StrEnum):
    """How grave a finding is."""

    ERROR = "error"  # Triton refuses the model, or hangs over it
    WARNING = "warning"  # Triton takes it, but ignores something, or does other than what seems to be meant
    ADVISORY = "advisory"  # Triton takes it; what could not be checked, and what the platform does about it


class ServerHas(TypedDict, total=False):
    """What the server has that an entry is checked for; None, or left out, where that is open."""

    backends: Collection[str] | None
    gpus: int | None  # how many each of its replicas has
    release: str | None  # of Triton, such as 26.08


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    what: str
    where: str  # a file below the entry, with the line where there is one: `config.pbtxt:12`
    why: str = ""
    do: str = ""

    def __post_init__(self) -> None:
        """Make texts printable: names and values in them come from files of unknown origin."""
        for name in ("what", "where", "why", "do"):
            text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in getattr(self, name))
            object.__setattr__(self, name, text)

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"

    @property
    def text(self) -> str:
        """The finding as people read it, without the place."""
        return message(f"{self.severity}: {self.what}", self.why, self.do)


error, warning, advisory = (partial(Finding, each) for each in Severity)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return only those that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return each once, errors first, then by file and line."""

    def place(finding: Finding) -> tuple[bool, str, int, str]:
        file, _, line = finding.where.rpartition(":")
        number = int(line) if file and line.isdigit() else 0
        return finding.severity is not Severity.ERROR, file or line, number, finding.what

    return sorted(dict.fromkeys(findings), key=place)
