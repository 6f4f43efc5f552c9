"""Findings of a check: what is wrong, where, why, and the remedy."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypedDict

from .errors import message


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"  # Triton refuses the model, or hangs
    WARNING = "warning"  # Triton accepts it, but ignores something or does something unexpected
    ADVISORY = "advisory"  # Triton accepts it. The check could not verify something, or the platform changes something.


class ServerHas(TypedDict, total=False):
    """Features of the server that an entry is checked against. None or a missing key: unknown."""

    backends: Collection[str] | None
    gpus: int | None  # how many each of its replicas has
    release: str | None  # of Triton, such as 26.08


@dataclass(frozen=True)
class Finding:
    """One finding."""

    severity: Severity
    what: str
    where: str  # a file of the entry, with the line if there is one: `config.pbtxt:12`
    why: str = ""
    do: str = ""

    def __post_init__(self) -> None:
        """Make texts printable: names and values in them come from untrusted files."""
        for name in ("what", "where", "why", "do"):
            text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in getattr(self, name))
            object.__setattr__(self, name, text)

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"

    @property
    def text(self) -> str:
        return message(f"{self.severity}: {self.what}", self.why, self.do)


error, warning, advisory = (partial(Finding, each) for each in Severity)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return only the errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without duplicates, errors first, then by file and line."""

    def place(finding: Finding) -> tuple[bool, str, int, str]:
        file, _, line = finding.where.rpartition(":")
        number = int(line) if file and line.isdigit() else 0
        return finding.severity is not Severity.ERROR, file or line, number, finding.what

    return sorted(dict.fromkeys(findings), key=place)
