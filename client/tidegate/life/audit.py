"""`verify` compares repositories with the registry, byte for byte. `prune` removes versions that are not needed."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from tidegate_contracts.environments import Environment
from tidegate_contracts.manifest import Manifest
from tidegate_contracts.message import Message

from ..errors import BusyError, IntegrityError, NotFoundError, UsageError
from ..names import nearest_of
from ..publishing import Repository
from ..registry import RegisteredVersion
from .context import Context
from .deploy import may
from .plan import registered_config, version_called
from .rules import before, current
from .target import Target, homes, repositories, targets

Registered = dict[int, RegisteredVersion]
Kind = Literal["content", "stray", "config", "alias", "missing"]


class Discrepancy(Message):
    """A difference between the registry and a repository."""

    kind: Kind
    """`content`: other bytes than registered. `stray`: a file in no manifest. `config`: a configuration that was not
    computed from what is registered. `alias`: another version than in the registry. `missing`: no version at all."""
    where: str
    model: str
    version: int | None = None
    what: str


class Verified(Message):
    """The result of `verify`."""

    environment: str
    repositories: tuple[str, ...]
    versions: int
    bytes: int
    found: tuple[Discrepancy, ...]

    @property
    def content(self) -> bool:
        """Whether the content of a file differs from the registered one."""
        return any(each.kind == "content" for each in self.found)


class Unserved(Message):
    """A version in a repository that is not served and that the registry can restore."""

    model: str
    version: int
    where: str
    bytes: int


def verify(context: Context, environment: str, models: Sequence[str] = ()) -> Verified:
    """Compare an environment, or some of its models, with the registry. Changes nothing. Raises TidegateError."""
    of = context.environment(environment)
    compared: list[str] = []
    found: list[Discrepancy] = []
    sizes: list[int] = []
    known: set[str] = set()
    for inside in repositories(of).values():
        repository = context.repository(inside[0])
        compared.append(repository.where)
        there, named = set(repository.models()), {home.model.name for home in inside}
        known |= there | named
        for model in sorted(there | named):
            if models and model not in models:
                continue
            if model in there and model not in named:
                found.append(_stray(repository, model, "the definition does not name it"))
            try:
                if model in there:
                    found += _content(context, repository, model, sizes)
                if model in named:
                    found += _alias(context, of, repository, model)
            except IntegrityError as error:  # such as a link. The other models are still compared.
                where = error.where or repository.where
                found.append(Discrepancy(kind="content", where=where, model=model, what=error.what))
            except UsageError as error:  # an invalid model name, or a configuration that cannot be read
                kind: Kind = "config" if model in named else "stray"
                found.append(Discrepancy(kind=kind, where=repository.where, model=model, what=error.what))
    if unknown := next((model for model in models if model not in known), None):
        raise NotFoundError(f"{of.name} has no model {unknown}", do=nearest_of(unknown, known, "models"))
    counts = {"versions": len(sizes), "bytes": sum(sizes)}
    return Verified(environment=of.name, repositories=tuple(compared), found=tuple(found), **counts)


def _content(context: Context, repository: Repository, model: str, sizes: list[int]) -> Iterator[Discrepancy]:
    registered = _registered(context, model)
    if not registered:
        yield _stray(repository, model, "it is not in the registry")
        return
    manifests = {}
    for number in repository.versions(model):
        if number not in registered:
            continue  # a stray, reported below
        manifest = manifests[number] = context.registry.manifest(registered[number])
        with context.progress(f"verifying {model} version {number}", manifest.size) as advance:
            for what in repository.differences(model, number, manifest, advance):
                yield Discrepancy(kind="content", where=repository.where, model=model, version=number, what=what)
        sizes.append(manifest.size)
    for what in repository.strays(model, manifests):
        yield _stray(repository, model, what)
    where = f"{repository.where}/{model}/{repository.configs.CONFIG}"
    for what in _config(context, repository, model, registered, manifests):
        yield Discrepancy(kind="config", where=where, model=model, what=what)


def _config(
    context: Context, repository: Repository, model: str, registered: Registered, manifests: dict[int, Manifest]
) -> Iterator[str]:
    """Yield the parts of a published configuration that do not follow from the registered entries."""
    text, configs = repository.config(model), repository.configs
    if text is None:
        yield "there is no configuration"
        return
    published = configs.read_published(text)
    if published.owner is None:
        yield "tidegate did not write it"
        return
    different: list[list[str]] = []
    for number in sorted({*published.served} & registered.keys(), reverse=True):
        manifest = manifests.get(number) or context.registry.manifest(registered[number])
        entry_config = registered_config(context.registry, registered[number], manifest, configs.CONFIG)
        served, aliases = published.served, published.aliases
        expected = configs.published_config(entry_config, model=model, owner=number, served=served, aliases=aliases)
        if expected == text:
            different = []
            break
        different.append(configs.config_differences(expected, text) or ["same meaning, different text"])
    for each in min(different, key=len, default=[]):
        yield f"differs from what was registered: {each}"
    for number in sorted({*published.served} - set(repository.versions(model))):
        yield f"it serves version {number}, which is not in the repository"


def _alias(context: Context, of: Environment, repository: Repository, model: str) -> Iterator[Discrepancy]:
    of_model = targets(of, model)
    target = next(target for target in of_model if context.repository(target.homes[0]).where == repository.where)
    text = repository.config(model)
    published = repository.configs.read_published(text) if text is not None else None
    registered = None
    with suppress(NotFoundError):
        registered = context.alias(model, of.name)
    serves = version_called(target, published, registered)
    if serves != registered:
        has, expects = ("no version" if number is None else f"version {number}" for number in (serves, registered))
        what = f"{of.name} has {has} here, but the registry's alias {of.name} has {expects}"
        kind: Kind = "missing" if serves is None else "alias"
        yield Discrepancy(kind=kind, where=repository.where, model=model, version=serves, what=what)


def _stray(repository: Repository, model: str, what: str) -> Discrepancy:
    return Discrepancy(kind="stray", where=repository.where, model=model, what=what)


def _registered(context: Context, model: str) -> Registered:
    with suppress(NotFoundError):
        return {version.number: version for version in context.registry.versions(model)}
    return {}


def unserved(context: Context, environment: str, model: str | None = None) -> list[Unserved]:
    """Return the versions of an environment that `prune` can remove. Raises TidegateError.

    Served versions are kept, versions that an alias or the definition names, versions that a rollback needs, and
    versions that are not in the registry. A damaged version is returned even if it is needed, unless it is served.
    """
    of = context.environment(environment)
    found = []
    for name in sorted({home.model.name for home in homes(of, model)}):
        for target in targets(of, name):
            repository = context.repository(target.homes[0])
            for number in _unserved(context, of, target, repository, repository.versions(name)):
                size = sum(each.size for each in repository.files(name) if each.path.startswith(f"{number}/"))
                found.append(Unserved(model=name, version=number, where=repository.where, bytes=size))
    return found


def prune(context: Context, environment: str, shown: Sequence[Unserved]) -> list[Unserved]:
    """Remove those of the shown versions that are still not served, and return them. The caller needs the permission to
    deploy. Raises TidegateError: BusyError if a configuration changed recently."""
    of = context.environment(environment)
    removed = []
    for name in sorted({each.model for each in shown}):
        who = may(context, of, name).principal
        for target in targets(of, name):
            repository = context.repository(target.homes[0])
            with repository.lock(name, who):
                here = [each for each in shown if (each.model, each.where) == (name, repository.where)]
                still = _unserved(context, of, target, repository, {each.version for each in here})
                if still and (age := repository.config_age(name)) < context.loaded_seconds:
                    left = context.loaded_seconds - age
                    what = f"{name} was changed {max(0, age):.0f} s ago: Triton may still load the versions to remove"
                    do = f"run the command again in {left / 60:.0f} minutes"
                    raise BusyError(what, where=repository.where, do=do, retry_after=left)
                for each in here:
                    if each.version in still:
                        context.tell(f"removing {name} version {each.version} from {repository.where}")
                        repository.remove_version(name, each.version)
                        removed.append(each)
    return removed


def _unserved(
    context: Context, of: Environment, target: Target, repository: Repository, among: Collection[int]
) -> list[int]:
    model = target.model
    if (text := repository.config(model)) is None:
        return []
    published, registered = repository.configs.read_published(text), _registered(context, model)
    if published.owner is None or not registered:
        return []  # not published by Tidegate
    records = context.records(model)
    if records.unreadable:
        return []  # an unreadable record may contain the version that an environment has
    served = {published.owner, *published.served} if published.served else set()  # a withdrawn model needs no version
    kept = set(target.named)
    for number in (current(records, of.name), context.alias(model, of.name)):
        if number is not None:
            kept |= {number, before(records, of.name, number) or number}

    def is_damaged(number: int) -> bool:
        manifest = context.registry.manifest(registered[number])
        with context.progress(f"verifying {model} version {number}", manifest.size) as advance:
            return bool(repository.differences(model, number, manifest, advance))

    there = set(among) & set(repository.versions(model)) & registered.keys() - served
    return sorted(number for number in there if number not in kept or is_damaged(number))
