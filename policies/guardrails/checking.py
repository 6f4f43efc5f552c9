"""Apply every rule to a stack, weigh the breaches by severities and waivers, and report the findings."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from .objects import Environment, Object, environments, name_of, namespace_of
from .rule import Breach
from .rules import BY_NAME, RULES
from .settings import Settings, Severity, Waiver

Level = Literal["mandatory", "advisory", "waived"]
_LEVELS: Mapping[Level, tuple[str, str]] = {
    "mandatory": ("mandatory finding", "mandatory findings"),
    "advisory": ("advisory", "advisories"),
    "waived": ("waived", "waived"),
}
"""Levels from the most severe one, with their singular and plural."""
EXPIRED = "waivers-have-not-expired"
UNUSED = "waivers-match-something"
READABLE = "guardrails-are-readable"
SETTINGS_RULES: Mapping[str, str] = {
    EXPIRED: "After the last day of a waiver, the findings that it covered have their normal severity again.",
    UNUSED: "A waiver that covers nothing now could hide a breach that someone adds later.",
    READABLE: "If the settings cannot be read, production's severities apply, without waivers.",
}
"""The findings about the settings themselves, and the reason of each. No setting changes or waives them."""


@dataclass(frozen=True)
class Finding:
    """A breach with its rule, its severity, why it matters and what to do."""

    rule: str
    severity: Level
    kind: str  # The kind of the object.
    namespace: str
    name: str
    what: str
    why: str = ""
    do: str = ""
    waiver: str = ""  # The owner, the reason and the last day, if the finding is waived.

    @property
    def object(self) -> str:
        """`Kind/name`, as waivers name it."""
        return f"{self.kind}/{self.name}"

    def __str__(self) -> str:
        """The first line has the object and the breach. Indented lines have the reason, the remedy and the rule."""
        level = "" if self.severity == "mandatory" else f"{self.severity}: "
        where = f"{self.object} in {self.namespace}" if self.namespace and self.kind != "Namespace" else self.object
        named = f"Rule {self.rule}, {self.severity} here." if not self.waiver else f"Rule {self.rule}, {self.waiver}"
        lines = [f"{where}: {level}{self.what}", *(f"    {line}" for line in (self.why, self.do, named) if line)]
        return "\n".join(map(printable, lines))


def check(objects: Iterable[Object], today: date) -> list[Finding]:
    """Return the findings about the objects of one stack on a day, the most severe first."""
    return by_severity(found for environment in judged(objects) for found in _findings(environment, today))


def judged(objects: Iterable[Object]) -> list[Environment]:
    """Return the environments in a stack, with their settings. Settings that name an unknown rule count as unreadable,
    because they would have no effect."""
    return [replace(each, settings=_with_known_rules(each.settings)) for each in environments(objects)]


def _with_known_rules(settings: Settings) -> Settings:
    named = (*settings.severities, *(waiver.rule for waiver in settings.waivers))
    unknown = next((name for name in named if name not in BY_NAME), None)
    return settings if unknown is None else Settings(malformed=f"{unknown!r} is not a rule")


def _findings(environment: Environment, today: date) -> Iterator[Finding]:
    settings = environment.settings
    covering: dict[Waiver, Severity] = {}
    for rule in RULES:
        severity = settings.severities.get(rule.name, rule.severity(settings.kind))
        if severity is None:
            continue
        for breach in rule(environment):
            kind, name = str(breach.object.get("kind")), name_of(breach.object)
            waivers = [waiver for waiver in settings.waivers if waiver.covers(rule.name, kind, name)]
            covering |= dict.fromkeys(waivers, severity)
            valid = next((waiver for waiver in waivers if today <= waiver.until), None)
            by = f"waived by {valid.owner} until {valid.until} ({valid.name}): {valid.reason}" if valid else ""
            do = f"{rule.do} {rule.lower}".strip() if severity == "mandatory" else rule.do
            yield _finding(breach, rule.name, "waived" if valid else severity, rule.why, do, by)
    namespace = environment.itself
    for waiver in settings.waivers:
        yield from _of_a_waiver(namespace, waiver, covering.get(waiver), today)
    if settings.malformed:
        what = f"its guardrails cannot be read: {settings.malformed}"
        do = "Write the annotation from the definition: run `tidegate up` or `tidegate values`."
        yield _finding(Breach(namespace, what), READABLE, "mandatory", SETTINGS_RULES[READABLE], do)


def _finding(breach: Breach, rule: str, severity: Level, why: str, do: str, waiver: str = "") -> Finding:
    item = breach.object
    where = str(item.get("kind")), namespace_of(item), name_of(item)
    return Finding(rule, severity, *where, breach.what, why, do, waiver)


def _of_a_waiver(namespace: Object, waiver: Waiver, covers: Severity | None, today: date) -> Iterator[Finding]:
    """Yield a finding if a waiver has expired or covers nothing. `covers` is the severity of its breaches."""
    about = f" at {waiver.object}" if waiver.object else ""
    if covers is None:
        ended = today > waiver.until
        what = f"expired on {waiver.until} and is not needed" if ended else "covers nothing"
        what = f"waiver {waiver.name} {what}: {waiver.rule} is not broken{about}"
        do = "Remove the waiver." if ended else "Remove the waiver, or correct its rule or object."
        rule = EXPIRED if ended else UNUSED
        yield _finding(Breach(namespace, what), rule, "advisory", SETTINGS_RULES[rule], do)
    elif today > waiver.until:
        what = f"waiver {waiver.name} of {waiver.rule}{about} expired on {waiver.until}"
        do = f"Fix what it covered, or agree on a new date with {waiver.owner}. Its reason was: {waiver.reason}"
        yield _finding(Breach(namespace, what), EXPIRED, covers, SETTINGS_RULES[EXPIRED], do)


def printable(text: str) -> str:
    """Return a text with every control character written as an escape, so that a terminal does not act on it."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] if ord(c) != 0x7F else "\\u007f" for c in text)


def counted(findings: Iterable[Finding]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none."""
    levels = [each.severity for each in findings]
    counts = ((levels.count(level), one, many) for level, (one, many) in _LEVELS.items())
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)


def report(found: Mapping[str, Sequence[Finding]], most: int | None = None) -> str:
    """Return the findings by stack as text: equal findings once, and at most `most` lines for each rule."""
    stacks: dict[Finding, list[str]] = {}
    for stack, findings in found.items():
        for each in findings:
            stacks.setdefault(each, []).append(stack)
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in by_severity(stacks):
        first, *rest = str(each).split("\n")
        where = printable(", ".join(name for name in stacks[each] if name))
        groups.setdefault(tuple(rest), []).append(f"{where}: {first}" if where else first)
    lines_of_report = []
    for why, lines in groups.items():
        left = 0 if most is None else len(lines) - most
        lines_of_report += [*lines[:most], *([f"… and {left} more like these"] if left > 0 else []), *why]
    return "\n".join(lines_of_report)


def summary(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none. Equal findings of two stacks count once."""
    return counted(dict.fromkeys(each for findings in found.values() for each in findings))


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings without duplicates, the most severe first."""
    return sorted(dict.fromkeys(findings), key=lambda each: list(_LEVELS).index(each.severity))
