"""What a check finds: what is wrong, where, why, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Triton refuses the model, or hangs over it."""
    WARNING = "warning"
    """Triton takes it, but ignores something, or does other than what seems to be meant."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    what: str
    where: str
    """A file below the entry, with the line where there is one: `config.pbtxt:12`."""
    why: str = ""
    do: str = ""

    def __post_init__(self) -> None:
        """Make texts printable: names and values in them come from files of unknown origin."""
        for name in ("what", "where", "why", "do"):
            object.__setattr__(self, name, _printable(getattr(self, name)))

    def __str__(self) -> str:
        """The finding as people read it, on one to three lines."""
        return f"{self.where}: {self.said}"

    @property
    def said(self) -> str:
        """The same without the place."""
        lines = [f"{self.severity}: {self.what}"]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.do:
            lines.append(f"  do: {self.do}")
        return "\n".join(lines)


def error(what: str, where: str, why: str = "", do: str = "") -> Finding:
    """Return a finding that keeps Triton from serving the model."""
    return Finding(Severity.ERROR, what, where, why, do)


def warning(what: str, where: str, why: str = "", do: str = "") -> Finding:
    """Return a finding about something that Triton ignores, or takes otherwise than meant."""
    return Finding(Severity.WARNING, what, where, why, do)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return only those that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return each once, errors first, then by file and line."""
    return sorted(dict.fromkeys(findings), key=_place)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _place(finding: Finding) -> tuple[bool, str, int, str]:
    file, _, line = finding.where.rpartition(":")
    return (
        finding.severity is not Severity.ERROR,
        file or line,
        int(line) if file and line.isdigit() else 0,
        finding.what,
    )
