"""Asks every rule about a stack, and weighs the answers: severities of the environment, waivers and their days."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date

from .findings import Finding, by_severity, finding
from .objects import Environment, Object, environments, name_of
from .rule import Breach
from .rules import BY_NAME, RULES
from .settings import Settings, Severity, Waiver

EXPIRED = "waivers-have-not-expired"
UNUSED = "waivers-match-something"
READABLE = "guardrails-are-readable"
SETTINGS_RULES: Mapping[str, str] = {
    EXPIRED: "What it covered counts again: as severe as it would be without a waiver.",
    UNUSED: "It would cover, unseen, what somebody breaks later.",
    READABLE: "Production's rules are asked instead, without exceptions.",
}
"""What is said about the settings themselves, and why; no setting changes or waives these."""


def check(objects: Iterable[Object], today: date) -> list[Finding]:
    """Return what is wrong with the objects of one stack, on a day; what is most severe comes first."""
    return check_all({"": objects}, today)[""]


def check_all(stacks: Mapping[str, Iterable[Object]], today: date) -> dict[str, list[Finding]]:
    """Return what is wrong with each stack; rules that look at other environments see those of all these stacks."""
    known = {stack: judged(objects, stack) for stack, objects in stacks.items()}
    every = [environment for of_stack in known.values() for environment in of_stack]
    found: dict[str, list[Finding]] = {}
    for stack, of_stack in known.items():
        findings: list[Finding] = []
        for environment in of_stack:
            others = tuple(other for other in every if other is not environment)
            findings += _findings(replace(environment, others=others), today)
        found[stack] = by_severity(findings)
    return found


def judged(objects: Iterable[Object], stack: str = "") -> list[Environment]:
    """Return the environments in a stack, with the settings that they are held to.

    Settings that name a rule that does not exist count as unreadable: they would be without effect.
    """
    return [replace(each, settings=_with_known_rules(each.settings)) for each in environments(objects, stack)]


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
            if valid is None:
                yield finding(breach, rule.name, severity, rule.why, rule.do)
            else:
                by = f"waived by {valid.owner} until {valid.until} ({valid.name}): {valid.reason}"
                yield finding(breach, rule.name, "waived", rule.why, rule.do, by)
    namespaces = environment.of_kind("Namespace")
    namespace = namespaces[0] if namespaces else {"kind": "Namespace", "metadata": {"name": environment.namespace}}
    for waiver in settings.waivers:
        yield from _of_a_waiver(namespace, waiver, covering.get(waiver), today)
    if settings.malformed:
        what = f"its guardrails cannot be read: {settings.malformed}"
        do = "Let the definition write the annotation (`make up`, `make values`)."
        yield finding(Breach(namespace, what), READABLE, "mandatory", SETTINGS_RULES[READABLE], do)


def _of_a_waiver(namespace: Object, waiver: Waiver, covers: Severity | None, today: date) -> Iterator[Finding]:
    """Say when a waiver has ended, or covers nothing; `covers` is how severe what it covers would be."""
    about = f" at {waiver.object}" if waiver.object else ""
    if covers is None:
        what = f"waiver {waiver.name} covers nothing: {waiver.rule} is not broken{about}"
        do = "Take the waiver away, or correct its rule or object."
        yield finding(Breach(namespace, what), UNUSED, "advisory", SETTINGS_RULES[UNUSED], do)
    elif today > waiver.until:
        what = f"waiver {waiver.name} of {waiver.rule}{about} ended on {waiver.until}"
        do = f"Mend what it covered, or let {waiver.owner} give it another end. Its reason was: {waiver.reason}"
        yield finding(Breach(namespace, what), EXPIRED, covers, SETTINGS_RULES[EXPIRED], do)
