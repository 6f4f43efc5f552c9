"""Brings a registered version into an environment: deploy, promote and rollback are this, under different rules.

Every step can be done again, and a step that was done costs a look. Until calls go to the new version everywhere, every
failure puts the configurations back; whoever is killed leaves the old version serving beside the new one, and the next
run goes on.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from tidegate_contracts.environments import Environment
from tidegate_contracts.message import Message

from ..registry import Record, RegisteredVersion
from .context import Context
from .failure import put_back_on_failure, said_on_failure
from .ledger import check_alias, is_written, write_down
from .past import BRINGS, What, before, current
from .plan import Had, make_plan
from .ready import until_called
from .steps import check, entry_config_of, publish, try_out
from .target import Place, places


class Outcome(Message):
    """What became of it."""

    what: What
    model: str
    version: int
    environment: str
    previous: int | None
    """The version that the environment had before."""
    changed: bool
    """Whether anything was to be done."""
    who: str
    planes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What is worth knowing all the same."""


def bring(
    context: Context,
    what: What,
    version: RegisteredVersion,
    of: Environment,
    who: str,
    *,
    replace: bool = False,
    source: str | None = None,
) -> Outcome:
    """Bring a version, which the rules allow, into an environment; it serves everywhere when this returns.

    `replace` lets the old version go as the new one comes, where they cannot be served beside each other. Raises
    TidegateError: BusyError where somebody else is at it, UnfinishedError where it came to nothing half way.
    """
    everywhere = places(of, version.model, context.known)
    manifest = context.registry.manifest(version)
    if context.trust is not None:
        context.registry.verify_signature(version, context.trust)
    entry_config = entry_config_of(context, version, manifest, everywhere[0].kind)
    notes: list[str] = []
    with ExitStack() as locks:
        repositories = [context.repository(of, place.uses[0].home) for place in everywhere]
        for _, repository in sorted(zip(everywhere, repositories, strict=True), key=lambda pair: pair[0].key):
            locks.enter_context(repository.lock(version.model, who))
        expected = context.registry.alias(version.model, of.name)
        records = context.records(version.model)
        plans = [
            make_plan(
                place, repository, version.number, entry_config, _had(place, of, records, expected), replace=replace
            )
            for place, repository in zip(everywhere, repositories, strict=True)
        ]
        for plan in plans:
            notes += check(context, plan, version, manifest, entry_config, replace=replace)
        changed = any(plan.now != plan.last for plan in plans)
        with put_back_on_failure(context, version, of, plans, notes):
            if changed:
                for plan in plans:
                    publish(context, plan, version, manifest)
            if changed or not is_written(of, version.number, records, plans):
                # Also where a run that was killed had written the last configuration: it may have seen no answer.
                notes += try_out(context, plans, version)
                check_alias(context, version, of, expected)
            for plan in plans:
                plan.repository.write_config(version.model, plan.last)
            for plan in plans:
                for use in plan.place.uses:
                    context.tell(f"waiting until calls go to version {version.number} on {use.home.plane.name}")
                    until_called(context, use, version.number)
        with said_on_failure(context, version, of):
            previous = write_down(context, what, version, of, who, records, plans, expected, source)
    return Outcome(
        what=what,
        model=version.model,
        version=version.number,
        environment=of.name,
        previous=previous if previous != version.number else before(records, of.name, version.number),
        changed=changed or previous != version.number,
        who=who,
        planes=tuple(use.home.plane.name for place in everywhere for use in place.uses),
        notes=tuple(dict.fromkeys([*notes, *_unserved(everywhere, version.number)])),
    )


def _had(place: Place, of: Environment, records: Sequence[Record], named: int | None) -> Had:
    """Return what the registry tells of the environment, where it reads a place; its alias names a version."""
    reading = {use.environment.name for use in (*place.uses, *place.shared)}
    ever = frozenset(each.version for each in records if each.what in BRINGS and each.environment in reading)
    others = {
        (use.environment.name, use.home.plane.name): number
        for use in place.shared
        if (number := current(records, use.environment.name, use.home.plane.name)) is not None
    }
    return Had(current(records, of.name, place.uses[0].home.plane.name), ever, others, named)


def _unserved(everywhere: Sequence[Place], number: int) -> list[str]:
    notes = []
    for use in (use for place in everywhere for use in place.uses):
        shares = {share.version: share.weight for share in use.home.model.versions}
        if shares and not shares.get(number):
            notes.append(
                f"on {use.home.plane.name} calls do not go to it: the definition shares them out among versions "
                f"{', '.join(map(str, shares))}; have the platform admin name {number} there"
            )
    return notes
