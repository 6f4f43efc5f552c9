"""What is said about broken rules: which object, what is wrong with it, why that matters and what to do."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .objects import name_of, namespace_of
from .rule import Breach

Level = Literal["mandatory", "advisory", "waived"]
_LEVELS: Mapping[Level, tuple[str, str]] = {
    "mandatory": ("mandatory finding", "mandatory findings"),
    "advisory": ("advisory", "advisories"),
    "waived": ("waived", "waived"),
}
"""The most severe first, with the words for one and for many."""


@dataclass(frozen=True)
class Finding:
    """A breach with its rule, its severity, why it matters and what to do."""

    rule: str
    severity: Level
    kind: str
    """Kind, namespace and name of the object."""
    namespace: str
    name: str
    what: str
    why: str = ""
    do: str = ""
    waiver: str = ""
    """Who answers for it, why and how long, where it is waived."""

    @property
    def object(self) -> str:
        """`Kind/name`, as waivers name it."""
        return f"{self.kind}/{self.name}"

    def __str__(self) -> str:
        """The first line says where and what; indented lines say why, what to do, and which rule it is."""
        level = "" if self.severity == "mandatory" else f"{self.severity}: "
        where = f"{self.object} in {self.namespace}" if self.namespace and self.kind != "Namespace" else self.object
        named = f"Rule {self.rule}, {self.severity} here." if not self.waiver else f"Rule {self.rule}, {self.waiver}"
        lines = [f"{where}: {level}{self.what}", *(f"    {line}" for line in (self.why, self.do, named) if line)]
        return "\n".join(map(printable, lines))


def finding(breach: Breach, rule: str, severity: Level, why: str, do: str, waiver: str = "") -> Finding:
    """Return the finding of a breach."""
    item = breach.object
    return Finding(
        rule, severity, str(item.get("kind")), namespace_of(item), name_of(item), breach.what, why, do, waiver
    )


def printable(text: str) -> str:
    """Return a text with everything that a terminal could act on written as an escape."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] if ord(c) != 0x7F else "\\u007f" for c in text)


def counted(findings: Iterable[Finding]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none."""
    levels = [each.severity for each in findings]
    counts = ((levels.count(level), one, many) for level, (one, many) in _LEVELS.items())
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)


def report(found: Mapping[str, Sequence[Finding]], most: int | None = None) -> str:
    """Return the findings of several stacks: what is alike is said once, of each rule at most so many lines."""
    stacks: dict[Finding, list[str]] = {}
    for stack, findings in found.items():
        for each in findings:
            stacks.setdefault(each, []).append(stack)
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in by_severity(stacks):
        first, *rest = str(each).split("\n")
        where = printable(", ".join(name for name in stacks[each] if name))
        groups.setdefault(tuple(rest), []).append(f"{where}: {first}" if where else first)
    return "\n".join("\n".join([*_shortened(lines, most), *rest]) for rest, lines in groups.items())


def summary(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none; what two stacks have alike counts once."""
    return counted(dict.fromkeys(each for findings in found.values() for each in findings))


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, each once, the most severe first."""
    return sorted(dict.fromkeys(findings), key=lambda each: list(_LEVELS).index(each.severity))


def _shortened(lines: list[str], most: int | None) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"… and {len(lines) - most} more like these"]
