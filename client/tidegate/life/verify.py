"""Compares what lies in an environment's repositories with the registry, byte for byte. It changes nothing."""

from collections.abc import Iterator, Sequence
from typing import Literal

from tidegate_contracts.environments import Environment
from tidegate_contracts.message import Message

from ..environments import nearest
from ..errors import IntegrityError, NotFoundError, UsageError
from ..registry import RegisteredVersion
from ..repository import Repository
from .context import Context
from .plan import called, config_text
from .target import places, servers


class Found(Message):
    """One thing that is not as it should be."""

    kind: Literal["content", "stray", "config", "alias", "missing"]
    """Other bytes than registered · something that no manifest names · a configuration that was not computed from
    what was registered · registry and repository disagree on the environment's version · it is not there at all."""
    where: str
    model: str
    version: int | None = None
    what: str


class Verified(Message):
    """What was looked at, and what was found."""

    environment: str
    repositories: tuple[str, ...]
    versions: int
    bytes: int
    found: tuple[Found, ...]

    @property
    def content(self) -> bool:
        """Whether bytes are other than they were registered."""
        return any(each.kind == "content" for each in self.found)


def verify(context: Context, environment: str, models: Sequence[str] = ()) -> Verified:
    """Compare an environment, or some of its models, with the registry. Raises TidegateError."""
    of = context.environment(environment)
    looked: list[str] = []
    found: list[Found] = []
    counted: list[int] = []
    known: set[str] = set()
    for homes in servers(of).values():
        if not homes:
            continue  # the definition serves nothing from it
        repository = context.repository(of, homes[0])
        looked.append(repository.where)
        there = set(repository.models())
        named = {home.model.name for home in homes}
        known |= there | named
        for model in sorted(there | named):
            if models and model not in models:
                continue
            if model in there and model not in named:
                found.append(_stray(repository, model, "the definition does not name it"))
            try:
                if model in there:
                    found += _model(context, repository, model, counted)
                if model in named:
                    found += _alias(context, of, repository, model)
            except IntegrityError as error:  # a link, say: it hides nothing of the other models
                found.append(Found(kind="content", where=error.where or repository.where, model=model, what=error.what))
            except UsageError as error:  # a name that no model can have, a configuration that cannot be read
                kind: Literal["config", "stray"] = "config" if model in named else "stray"
                found.append(Found(kind=kind, where=repository.where, model=model, what=error.what))
    for model in models:
        if model not in known:
            raise NotFoundError(f"{of.name} has no model {model}", do=nearest(model, known, "models"))
    return Verified(
        environment=of.name, repositories=tuple(looked), versions=len(counted), bytes=sum(counted), found=tuple(found)
    )


def _model(context: Context, repository: Repository, model: str, counted: list[int]) -> Iterator[Found]:
    try:
        registered = {version.number: version for version in context.registry.versions(model)}
    except NotFoundError:
        yield _stray(repository, model, "it is not in the registry")
        return
    manifests = {}
    for number in repository.versions(model):
        if number not in registered:
            continue  # a stray, as is told below
        manifest = manifests[number] = context.registry.manifest(registered[number])
        with context.progress(f"verifying {model} version {number}", manifest.size) as advance:
            for what in repository.differences(model, number, manifest, advance):
                yield Found(kind="content", where=repository.where, model=model, version=number, what=what)
        counted.append(manifest.size)
    for what in repository.strays(model, manifests):
        yield _stray(repository, model, what)
    yield from _config(context, repository, model, registered)


def _config(
    context: Context, repository: Repository, model: str, registered: dict[int, RegisteredVersion]
) -> Iterator[Found]:
    def wrong(what: str) -> Found:
        return Found(
            kind="config", where=f"{repository.where}/{model}/{repository.configs.CONFIG}", model=model, what=what
        )

    text, configs = repository.config(model), repository.configs
    if text is None:
        yield wrong("there is none")
        return
    published = configs.read_published(text)
    if published.owner is None:
        yield wrong("it was not written by tidegate")
        return
    nearest: list[str] | None = None
    for number in sorted({*published.served} & registered.keys(), reverse=True):
        try:
            content = context.registry.read_file(registered[number], configs.CONFIG)
            entry_config = config_text(content, configs.CONFIG, f"version {number} of {model} in the registry")
        except NotFoundError:
            entry_config = ""
        expected = configs.published_config(
            entry_config, model=model, owner=number, served=published.served, aliases=published.aliases
        )
        if expected == text:
            nearest = []
            break
        different = configs.config_differences(expected, text) or ["it says the same in other words"]
        if nearest is None or len(different) < len(nearest):
            nearest = different
    for each in nearest or []:
        yield wrong(f"not as computed from what was registered: {each}")
    for number in sorted({*published.served, *published.aliases.values()} - set(repository.versions(model))):
        yield wrong(f"it serves version {number}, which is not there")


def _alias(context: Context, of: Environment, repository: Repository, model: str) -> Iterator[Found]:
    place = next(
        place for place in places(of, model, context.known)
        if context.repository(of, place.uses[0].home).where == repository.where
    )  # fmt: skip
    text = repository.config(model)
    published = repository.configs.read_published(text) if text is not None else None
    try:
        registered = context.registry.alias(model, of.name)
    except NotFoundError:
        registered = None
    serves = called(place, published, registered)
    if serves == registered:
        return
    kind: Literal["alias", "missing"] = "missing" if serves is None else "alias"
    has, says = (_words(number) for number in (serves, registered))
    yield Found(
        kind=kind, where=repository.where, model=model, version=serves,
        what=f"{of.name} has {has} of it here, and by the registry's alias {of.name} it should have {says}",
    )  # fmt: skip


def _stray(repository: Repository, model: str, what: str) -> Found:
    return Found(kind="stray", where=repository.where, model=model, what=what)


def _words(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
