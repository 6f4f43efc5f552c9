"""What is said about a broken rule: which object, what is wrong with it, why that matters and what to do."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .objects import name_of, namespace_of

Level = Literal["mandatory", "advisory", "waived"]


@dataclass(frozen=True)
class Breach:
    """One place where a rule is broken; `what` never holds a secret."""

    object: Mapping[str, Any]
    what: str


@dataclass(frozen=True)
class Finding:
    """A breach with everything that people need to know about it."""

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
    words = {"mandatory": ("mandatory finding", "mandatory findings"), "advisory": ("advisory", "advisories")}
    words["waived"] = ("waived", "waived")
    counts = ((levels.count(level), *forms) for level, forms in words.items())  # type: ignore[arg-type]
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)
