"""Asks every rule about a stack, weighs the answers by severities, waivers and their days, and says what is wrong."""

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
"""The most severe first, with the words for one and for many."""
EXPIRED = "waivers-have-not-expired"
UNUSED = "waivers-match-something"
READABLE = "guardrails-are-readable"
SETTINGS_RULES: Mapping[str, str] = {
    EXPIRED: "What it covered counts again: as severe as it would be without a waiver.",
    UNUSED: "It would cover, unseen, what somebody breaks later.",
    READABLE: "Production's rules are asked instead, without exceptions.",
}
"""What is said about the settings themselves, and why; no setting changes or waives these."""


@dataclass(frozen=True)
class Finding:
    """A breach with its rule, its severity, why it matters and what to do."""

    rule: str
    severity: Level
    kind: str  # Kind, namespace and name of the object.
    namespace: str
    name: str
    what: str
    why: str = ""
    do: str = ""
    waiver: str = ""  # Who answers for it, why and how long, where it is waived.

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


def check(objects: Iterable[Object], today: date) -> list[Finding]:
    """Return what is wrong with the objects of one stack, on a day; what is most severe comes first."""
    return by_severity(found for environment in judged(objects) for found in _findings(environment, today))


def judged(objects: Iterable[Object]) -> list[Environment]:
    """Return the environments in a stack, with the settings that they are held to.

    Settings that name a rule that does not exist count as unreadable: they would be without effect.
    """
    return [replace(each, settings=_with_known_rules(each.settings)) for each in environments(objects)]


def _with_known_rules(settings: Settings) -> Settings:
    named = (*settings.severities, *(waiver.rule for waiver in settings.waivers))
    unknown = next((name for name in named if name not in BY_NAME), None)
    return settings if unknown is None else Settings(malformed=f"{unknown!r} is no rule")


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
            yield _finding(breach, rule.name, "waived" if valid else severity, rule.why, rule.do, by)
    namespace = environment.itself
    for waiver in settings.waivers:
        yield from _of_a_waiver(namespace, waiver, covering.get(waiver), today)
    if settings.malformed:
        what = f"its guardrails cannot be read: {settings.malformed}"
        do = "Let the definition write the annotation (`tidegate up`, `tidegate values`)."
        yield _finding(Breach(namespace, what), READABLE, "mandatory", SETTINGS_RULES[READABLE], do)


def _finding(breach: Breach, rule: str, severity: Level, why: str, do: str, waiver: str = "") -> Finding:
    item = breach.object
    where = str(item.get("kind")), namespace_of(item), name_of(item)
    return Finding(rule, severity, *where, breach.what, why, do, waiver)


def _of_a_waiver(namespace: Object, waiver: Waiver, covers: Severity | None, today: date) -> Iterator[Finding]:
    """Say when a waiver has ended, or covers nothing; `covers` is how severe what it covers would be."""
    about = f" at {waiver.object}" if waiver.object else ""
    if covers is None:
        ended = today > waiver.until
        what = f"ended on {waiver.until}, and nothing needs it" if ended else "covers nothing"
        what = f"waiver {waiver.name} {what}: {waiver.rule} is not broken{about}"
        do = "Take the waiver away." if ended else "Take the waiver away, or correct its rule or object."
        rule = EXPIRED if ended else UNUSED
        yield _finding(Breach(namespace, what), rule, "advisory", SETTINGS_RULES[rule], do)
    elif today > waiver.until:
        what = f"waiver {waiver.name} of {waiver.rule}{about} ended on {waiver.until}"
        do = f"Mend what it covered, or let {waiver.owner} give it another end. Its reason was: {waiver.reason}"
        yield _finding(Breach(namespace, what), EXPIRED, covers, SETTINGS_RULES[EXPIRED], do)


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
    said = []
    for why, lines in groups.items():
        left = 0 if most is None else len(lines) - most
        said += [*lines[:most], *([f"… and {left} more like these"] if left > 0 else []), *why]
    return "\n".join(said)


def summary(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none; what two stacks have alike counts once."""
    return counted(dict.fromkeys(each for findings in found.values() for each in findings))


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, each once, the most severe first."""
    return sorted(dict.fromkeys(findings), key=lambda each: list(_LEVELS).index(each.severity))
