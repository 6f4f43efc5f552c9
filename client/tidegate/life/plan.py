"""What is to become of one repository: its configuration before, while both versions serve, and afterwards.

Triton loads every served version anew when anything but the set of served versions changes. So nothing else changes
that need not: an alias stands in the configuration only where the definition has the model called by one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidegate_contracts.manifest import Manifest

from ..errors import RefusedError, UsageError
from ..repository import Published, Repository
from .target import Place


@dataclass(frozen=True)
class Had:
    """What the records tell of the environment."""

    current: int | None = None
    """The version that it has."""
    ever: frozenset[int] = frozenset()
    """Versions that came to the end of their way, into this environment or another one that reads the repository."""
    others: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Versions that other environments have, which read the repository: by environment and data plane."""
    named: int | None = None
    """The version that the registry's alias names: it had been seen to be called before that was moved."""


@dataclass(frozen=True)
class Plan:
    """For one place and one version."""

    place: Place
    repository: Repository
    number: int
    old: int | None
    """The version that is called there now."""
    now: str | None
    """The configuration that is there now, whoever left it so."""
    before: str | None
    """The configuration to go back to when it comes to nothing; None where the model is new."""
    first: str
    """The configuration under which old and new serve, and calls by an alias still go to the old one."""
    last: str
    """The one under which they go to the new one, and the newest is the new one."""
    fresh: bool
    """Whether nobody has been seen to serve the version yet."""
    back: int | None = None
    """The version that is called once `before` is in force again, where that can be told."""
    is_cut_over: bool = False
    """Whether an earlier run had calls go to the version already, and did not come to its end."""

    def is_there(self, manifest: Manifest) -> bool:
        """Whether the version lies in the repository already.

        In an object store some of its files may, whose upload was cut short: while it is not served, that is none.
        """
        configs = self.repository.configs
        if self.number not in self.repository.versions(self.place.model):
            return False
        if self.now is not None and self.number in configs.read_published(self.now).served:
            return True
        there = {file.path for file in self.repository.files(self.place.model)}
        return all(configs.published_path(file.path, self.number) in there for file in manifest.files)

    @property
    def peak(self) -> int:
        """How many versions are loaded at one time, at the most, while it comes in."""
        way = [text for text in (self.before, self.first, self.last) if text is not None]
        pairs = zip([None, *way], way, strict=False)
        return max(self.repository.configs.loaded_at_once(one, other) for one, other in pairs)


def make_plan(place: Place, repository: Repository, number: int, entry_config: str, had: Had, *, replace: bool) -> Plan:
    """Return the plan for a version whose entry has this configuration.

    With `replace` the old version does not serve beside the new one. Raises UsageError for a model that somebody else
    put there, and RefusedError where another environment that reads the repository would get the version too.
    """
    model = place.model
    there = frozenset(repository.versions(model))
    text = repository.config(model)
    configs = repository.configs
    published = configs.read_published(text) if text is not None else None
    if published is not None:  # an alias for what is not served, as in a configuration that was withdrawn, is none
        served_now = {name: each for name, each in published.aliases.items() if each in published.served}
        published = Published(published.owner, published.served, served_now)
    if (published is None and there) or (published is not None and published.owner is None):
        raise UsageError(
            f"a model {model} lies in the repository that was not published by tidegate",
            where=repository.where,
            why="what it is made of is in no registry, so that it could be neither verified nor brought back",
            do="register it; then, when nobody needs it for a minute, move its folder away and run the command again",
        )
    aliases = dict(published.aliases) if published is not None else {}
    others = {name: target for name, target in aliases.items() if name in {use.routed for use in place.shared}}
    _check_shared(place, repository, number, {name: each for name, each in others.items() if each in there}, had)
    old = called(place, published, had.current)
    named = (set(others.values()) | place.named) & there
    served = set(published.served) if published is not None and not replace else set()
    # Who is called already stays as it is, with what a rollback goes back to. A run that was killed after its cut-over
    # left the version that the records tell, which proxies may still call.
    kept = named | (served & (had.ever if number == old == had.current else {old, had.current, *had.others.values()}))
    moved = others | dict.fromkeys(place.aliases, number)
    still = others | _each(place.aliases & aliases.keys(), old)

    def config(served: set[int], names: Mapping[str, int]) -> str:
        return configs.published_config(entry_config, model=model, owner=number, served=served, aliases=names)

    after = kept
    if any(use.follows == "newest" for use in place.uses):
        after = {each for each in named if each < number}
    last = config(after | {number}, moved)
    first = last if replace else config(kept | {number}, still)
    fresh = published is None or number not in published.served or number not in had.ever
    back, before = old, None
    is_cut_over = number == old and number not in (had.current, had.named)
    if is_cut_over:
        back = had.current if had.current in there else None
        left = kept & {*named, *had.others.values()} | ({back} if back is not None else set())
        before = _config_of(repository, place, left, back, others | _each(place.aliases & aliases.keys(), back))
    elif published is not None:
        before = _before(place, repository, text, published, old, had)
    return Plan(place, repository, number, old, text, before, first, last, fresh, back, is_cut_over)


def _each(names: Collection[str], number: int | None) -> dict[str, int]:
    return {} if number is None else dict.fromkeys(names, number)


def _check_shared(place: Place, repository: Repository, number: int, others: Mapping[str, int], had: Had) -> None:
    """Check that no environment that reads the repository too gets another version by this, or loses its own.

    One that has none yet, and takes any, gets it; one that takes versions from another environment does not.
    """
    newest = any(use.follows == "newest" for use in place.uses)
    for use in place.shared:
        name = use.environment.name
        has = had.others.get((name, use.home.plane.name))
        takes_any = has is None and use.environment.promotion.source is None
        if use.follows == "alias":
            gets = use.routed in place.aliases
        else:
            gets = use.follows == "newest" and (newest or has is None or number > has)
        if gets and has != number and not takes_any:
            raise RefusedError(
                f"{name} would get version {number} too",
                where=repository.where,
                why=f"it reads this repository, and calls {f'the alias {use.routed}' if use.routed else 'the newest'} "
                f"as well; it has {'none' if has is None else f'version {has}'}",
                do="have the platform admin give each environment an alias of its own, or a repository of its own",
            )
        needs = {*use.named, *(target for alias, target in others.items() if alias == use.routed)}
        if newest and (newer := sorted(each for each in needs if each > number)):
            raise RefusedError(
                f"version {number} cannot be the newest: {name} needs version {newer[0]}",
                where=repository.where,
                why="calls go to the newest version that is served, and both environments read this repository",
                do="have the platform admin give the model an alias here too, or a repository of its own",
            )


def called(place: Place, published: Published | None, recorded: int | None) -> int | None:
    """Return the version that is called: its alias says it, else the records if it is served, else it is the newest."""
    if published is None:
        return None
    found = [published.aliases[name] for name in sorted(place.aliases) if name in published.aliases]
    if found:
        return found[0]
    if recorded in published.served:
        return recorded
    return max(published.served, default=None) if place.newest else None


def _before(
    place: Place, repository: Repository, text: str | None, published: Published, old: int | None, had: Had
) -> str | None:
    """Return the configuration to go back to: not that of somebody who stopped half way, but the one before."""
    half = set(published.served) - had.ever - place.named - {old, *published.aliases.values()}
    if not half:
        return text
    return _config_of(repository, place, set(published.served) - half, old, published.aliases)


def _config_of(
    repository: Repository, place: Place, served: set[int], called: int | None, aliases: Mapping[str, int]
) -> str | None:
    """Return the configuration under which these versions serve; None where there are none."""
    if not served:
        return None
    # Where other environments' versions are all that served before, it is one of them.
    owner = called if called is not None else max(served)
    text = published_entry_config(repository, place.model, owner)
    return repository.configs.published_config(text, model=place.model, owner=owner, served=served, aliases=aliases)


def published_entry_config(repository: Repository, model: str, number: int) -> str:
    """Return the configuration of a published version's entry; an empty one where it has none. Raises UsageError."""
    path = repository.configs.published_path(repository.configs.CONFIG, number)
    if all(file.path != path for file in repository.files(model)):
        return ""
    return config_text(repository.read(model, path), repository.configs.CONFIG, f"{repository.where}/{model}/{path}")


def config_text(content: bytes, name: str, where: str) -> str:
    """Return the text of a configuration; raises UsageError where it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is no text in UTF-8",
            where=where,
            why=f"byte {error.start} cannot be read: {error.reason}",
            do="mend the entry, and register it again",
        ) from None
