"""What is to become of one repository: its configuration before, while both versions serve, and afterwards.

Triton loads every served version anew when anything but the set of served versions changes. So nothing else changes
that need not: an alias stands in the configuration only where the definition has the model called by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..entries.text import CONFIG
from ..errors import UsageError
from ..publishing import Published, Repository, config_differences, published_config, published_path, read_published
from .target import Place


@dataclass(frozen=True)
class Had:
    """What the records tell of the environment."""

    current: int | None = None
    """The version that it has."""
    ever: frozenset[int] = frozenset()
    """Versions that came to the end of their way, into this environment or another one that reads the repository."""


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

    @property
    def is_there(self) -> bool:
        """Whether the version lies in the repository already."""
        return self.number in self.repository.versions(self.place.model)

    @property
    def peak(self) -> int:
        """How many versions are loaded at one time, at the most, while it comes in."""
        way = [text for text in (self.before, self.first, self.last) if text is not None]
        pairs = zip([None, *way], way, strict=False)
        return max(_loaded(one, other) for one, other in pairs)


def make_plan(place: Place, repository: Repository, number: int, entry_config: str, had: Had, *, replace: bool) -> Plan:
    """Return the plan for a version whose entry has this configuration.

    With `replace` the old version does not serve beside the new one. Raises UsageError for a model that somebody else
    put there.
    """
    model = place.model
    there = frozenset(repository.versions(model))
    text = repository.config(model)
    published = read_published(text) if text is not None else None
    if (published is None and there) or (published is not None and published.owner is None):
        raise UsageError(
            f"a model {model} lies in the repository that was not published by tidegate",
            where=repository.where,
            why="what it is made of is in no registry, so that it could be neither verified nor brought back",
            do="register it; then, when nobody needs it for a minute, move its folder away and run the command again",
        )
    aliases = dict(published.aliases) if published is not None else {}
    others = {name: target for name, target in aliases.items() if name in {use.routed for use in place.shared}}
    old = called(place, published, had.current)
    named = (set(others.values()) | place.named) & there
    served = set(published.served) if published is not None and not replace else set()
    # Who is called already stays as it is, with what a rollback goes back to. A run that was killed after its cut-over
    # left the version that the records tell, which proxies may still call.
    kept = named | (served & (had.ever if number == old == had.current else {old, had.current}))
    moved = others | dict.fromkeys(place.aliases, number)
    still = others | ({} if old is None else dict.fromkeys(place.aliases & aliases.keys(), old))

    def config(served: set[int], names: Mapping[str, int]) -> str:
        return published_config(entry_config, model=model, owner=number, served=served, aliases=names)

    after = {each for each in named if each < number} if place.newest else kept
    last = config(after | {number}, moved)
    first = last if replace else config(kept | {number}, still)
    fresh = published is None or number not in published.served or number not in had.ever
    before = _before(place, repository, text, published, old, had)
    return Plan(place, repository, number, old, text, before, first, last, fresh)


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
    place: Place, repository: Repository, text: str | None, published: Published | None, old: int | None, had: Had
) -> str | None:
    """Return the configuration to go back to: not that of somebody who stopped half way, but the one before."""
    if published is None:
        return None
    half = set(published.served) - had.ever - place.named - {old, *published.aliases.values()}
    if not half:
        return text
    left = set(published.served) - half
    if not left:
        return None
    owner = old if old is not None else max(left)  # where other environments' versions are all that served before
    path = published_path(CONFIG, owner)
    is_there = any(file.path == path for file in repository.files(place.model))
    entry_config = repository.read(place.model, path).decode() if is_there else ""
    return published_config(entry_config, model=place.model, owner=owner, served=left, aliases=published.aliases)


def _loaded(one: str | None, other: str) -> int:
    """Return how many versions are loaded at one time while a configuration takes another's place."""
    after = set(read_published(other).served)
    if one is None:
        return len(after)
    before = set(read_published(one).served)
    if all(each.startswith("version_policy") for each in config_differences(one, other)):
        return len(before | after)
    return len(before) + len(after)
