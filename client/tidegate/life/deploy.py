"""Deploy, promote and roll back, with their rules. All functions raise TidegateError.

A model is `fraud`, or `fraud@3` and `fraud@champion` for one version.
"""

from collections.abc import Sequence

from tidegate_contracts.environments import Environment, WhoAmI

from ..errors import IntegrityError, NotFoundError, RefusedError, UsageError
from ..registry import Record, RegisteredVersion
from ..registry.version import LATEST
from . import rules
from .context import Context
from .plan import version_called
from .publish import Outcome, publish_version
from .rules import Operation, before, current, of_environment
from .target import command_into, homes, targets


def deploy(context: Context, model: str, to: str | None = None) -> Outcome:
    """Deploy a version (default: the latest) to an environment that accepts any (default: the only one)."""
    name, which = _wanted(model)
    of = context.environment(to) if to is not None else _open_environment(context)
    if of.promotion.source is not None:
        raise RefusedError(f"{of.name} accepts only versions from {of.promotion.source}", do=command_into(of, model))
    return _bring(context, "deploy", name, which or LATEST, of)


def promote(context: Context, model: str, to: str) -> Outcome:
    """Promote a version (default: the one of the source environment) to an environment that has a source."""
    name, which = _wanted(model)
    of = context.environment(to)
    source = of.promotion.source
    if which is None:
        if source is None:
            what = f"{of.name} has no source environment, so you must name the version"
            raise UsageError(what, do=command_into(of, f"{name}@<version>"))
        which = str(context.alias(name, source) or "")
        if not which:
            do = command_into(context.environment(source), name)
            raise NotFoundError(f"{source} has no version of {name}", do=do)
    return _bring(context, "promote", name, which, of)


def rollback(context: Context, model: str, environment: str, to: int | None = None) -> Outcome:
    """Go back to the previous version, or an earlier one. Completes rollbacks and reverts deployments that stopped."""
    of = context.environment(environment)
    records = context.records(model, aloud=False)
    if to is None and records.unreadable:
        what = f"the previous version of {of.name} is unknown"
        why = f"{records.unreadable[0]} cannot be read, and may have contained it"
        raise IntegrityError(what, why=why, do="find out who wrote it, and repair it, or pass --version")
    number = to if to is not None else _target(context, of, model, records)
    if all(each.version != number or each.environment != of.name for each in records):
        do = f"run `tidegate history {model}` to see its versions, or deploy or promote a new version"
        raise RefusedError(f"version {number} of {model} was never in {of.name}", do=do)
    return _bring(context, "rollback", model, number, of)


def may(context: Context, of: Environment, model: str) -> WhoAmI:
    """Query every proxy for the caller's name, and check the permission. The first identity is recorded."""
    found = []
    for home in homes(of, model):
        found.append(context.who(home))
        rules.may_publish(of.name, of.promotion, home.server.writers, found[-1])
    return found[0]


def _wanted(text: str) -> tuple[str, str | None]:
    model, at, which = text.partition("@")
    if not model or (at and not which):
        raise UsageError(f"{text!r} is not a model", do="write its name, optionally with a version or alias: fraud@3")
    return model, which or None


def _open_environment(context: Context) -> Environment:
    found = [each for each in context.known.environments if each.promotion.source is None]
    if len(found) != 1:
        why = f"environments that accept any version: {', '.join(each.name for each in found) or 'none'}"
        raise UsageError("you must name the environment", why=why, do="pass --to <name>")
    return found[0]


def _bring(context: Context, what: Operation, model: str, which: int | str, of: Environment) -> Outcome:
    """Publish a version to an environment if its rules allow it. A rollback is only subject to the permission."""
    version = context.registry.version(model, which)
    who = may(context, of, model)
    if what != "rollback":
        _check_rules(context, of, version, who)
    return publish_version(context, what, version, of, who.principal)


def _check_rules(context: Context, of: Environment, version: RegisteredVersion, who: WhoAmI) -> None:
    rule, number = of.promotion, version.number
    if rule.separation_of_duties:
        rules.other_than_who_registered(of.name, number, version.registered_by, who, version.unproven)
    if rule.source is not None:
        records = context.records(version.model, aloud=False)  # `publish_version` reports unreadable ones
        do = command_into(context.environment(rule.source), f"{version.model}@{number}")
        rules.was_in(rule.source, of.name, number, records, do)
        if rule.soak_hours:
            failures = _failures(context, context.environment(rule.source), version)
            rules.has_soaked(rule.source, number, rule.soak_hours, records, failures, context.now())


def _failures(context: Context, source: Environment, version: RegisteredVersion) -> int | None:
    """Return how many calls of a version failed in an environment. None if a server has no count of it."""
    failures = 0
    for home in homes(source, version.model):
        if not home.kind.speaks_v2:
            return None
        proxy = context.proxy(home.plane)
        statistics = proxy.statistics(version.model, server=home.server.name, version=version.number)
        here = [each for each in statistics if str(each.get("version")) == str(version.number)]
        if not here:
            return None
        failures += sum(home.kind.failures(each) for each in here)
    return failures


def _target(context: Context, of: Environment, model: str, records: Sequence[Record]) -> int:
    recorded = current(records, of.name)
    if recorded is None and (changes := of_environment(records, of.name)):
        return changes[-1].version  # the model was undeployed
    if recorded is None:
        raise NotFoundError(f"{of.name} has never had a version of {model}")
    previous = before(records, of.name, recorded)
    serves = _serves(context, of, model)
    if serves is not None and serves not in (recorded, previous):
        return recorded  # an interrupted deployment: another version is already called
    if previous is None:
        what = f"version {recorded} of {model} is the first in {of.name}, so there is no previous version"
        do = f"to choose one that was there, run: tidegate rollback {model} --in {of.name} --version <number>"
        raise NotFoundError(what, do=do)
    return previous


def _serves(context: Context, of: Environment, model: str) -> int | None:
    """Return the version that is called now, or None if the definition splits the traffic."""
    target = targets(of, model)[0]
    repository = context.repository(target.homes[0])
    if (text := repository.config(model)) is None:
        return None
    published = repository.configs.read_published(text)
    if target.newest:
        return max(published.served, default=None)
    return version_called(target, published, None)
