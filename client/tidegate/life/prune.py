"""Removes versions that nobody serves, after showing them."""

from collections.abc import Collection

from tidegate_contracts.message import Message

from ..errors import BusyError, NotFoundError
from ..repository import Repository
from .context import Context
from .deploy import may
from .past import before, current
from .target import Place, places, servers

LOADED_SECONDS = 900.0
"""After so long, whatever Triton began to load by an earlier configuration is loaded or has failed. Files that go while
it loads them hold its polling up for good (see `publishing`)."""


class Unserved(Message):
    """A version in a repository that nobody serves, and that the registry can bring back."""

    model: str
    version: int
    where: str
    bytes: int


def unserved(context: Context, environment: str, model: str | None = None) -> list[Unserved]:
    """Return the versions of an environment that can go. Raises TidegateError.

    Kept are those that are served, that an alias or a definition names, that a rollback would go back to, and those
    that the registry does not have: nobody could bring them back. What is not served and not as it was registered can
    go whatever wants it, for it is of no use: the registry brings it back.
    """
    of = context.environment(environment)
    found = []
    names = {home.model.name for homes in servers(of).values() for home in homes} if model is None else {model}
    for name in sorted(names):
        for place in places(of, name, context.known):
            repository = context.repository(of, place.uses[0].home)
            found += [
                Unserved(model=name, version=number, where=repository.where, bytes=_bytes(repository, name, number))
                for number in _unserved(context, place, repository, name, repository.versions(name))
            ]
    return found


def prune(context: Context, environment: str, shown: list[Unserved]) -> list[Unserved]:
    """Remove those that were shown and that still nobody serves; return the removed ones.

    Who may bring versions in may remove them. Raises TidegateError: BusyError for a model whose configuration was
    written just now.
    """
    of = context.environment(environment)
    removed = []
    for name in sorted({each.model for each in shown}):
        who = may(context, of, name).principal
        for place in places(of, name, context.known):
            repository = context.repository(of, place.uses[0].home)
            with repository.lock(name, who):
                here = [each for each in shown if (each.model, each.where) == (name, repository.where)]
                still = _unserved(context, place, repository, name, {each.version for each in here})
                if still and (age := repository.config_age(name)) < LOADED_SECONDS:
                    raise BusyError(
                        f"model {name} was changed {max(0, age):.0f} s ago: Triton may still be loading what is to go",
                        where=repository.where,
                        do=f"run the command again in {(LOADED_SECONDS - age) / 60:.0f} minutes",
                        retry_after=LOADED_SECONDS - age,
                    )
                for each in here:
                    if each.version in still:
                        context.tell(f"removing {name} version {each.version} from {repository.where}")
                        repository.remove_version(name, each.version)
                        removed.append(each)
    return removed


def _unserved(context: Context, place: Place, repository: Repository, model: str, among: Collection[int]) -> list[int]:
    text = repository.config(model)
    if text is None:
        return []
    published = repository.configs.read_published(text)
    if published.owner is None:
        return []  # not ours
    try:
        registered = {version.number: version for version in context.registry.versions(model)}
    except NotFoundError:
        return []
    records = context.records(model)
    if records.unreadable:
        return []  # one of them may say that an environment has it
    served = {published.owner, *published.served, *published.aliases.values()}
    kept = set(place.named)
    for name in {use.environment.name for use in (*place.uses, *place.shared)}:
        for number in (current(records, name), context.registry.alias(model, name)):
            if number is not None:
                kept |= {number, before(records, name, number) or number}

    def is_damaged(number: int) -> bool:
        manifest = context.registry.manifest(registered[number])
        with context.progress(f"verifying {model} version {number}", manifest.size) as advance:
            return bool(repository.differences(model, number, manifest, advance))

    there = set(among) & set(repository.versions(model)) & registered.keys() - served
    return sorted(number for number in there if number not in kept or is_damaged(number))


def _bytes(repository: Repository, model: str, number: int) -> int:
    return sum(file.size for file in repository.files(model) if file.path.startswith(f"{number}/"))
