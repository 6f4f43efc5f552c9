"""What is to become of one repository: its configuration before, while both versions serve, and afterwards.

Triton loads every served version anew when anything but the set of served versions changes. So nothing else changes
that need not: an alias stands in the configuration only where the definition has the model called by one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidegate_contracts.manifest import Manifest, published_path

from ..errors import UsageError
from ..publishing import Repository
from ..registry import RegisteredVersion, Registry
from ..repository import Published
from .target import Target


@dataclass(frozen=True)
class History:
    """Versions that an environment has and had, from the registry's records."""

    current: int | None = None  # the version that it has
    ever: frozenset[int] = frozenset()
    """Versions that came to the end of their way."""
    named: int | None = None
    """The version that the registry's alias names: it had been seen to be called before that was moved."""


@dataclass(frozen=True)
class Plan:
    """The configurations of one repository before, during and after a version comes in."""

    target: Target
    repository: Repository
    number: int
    old: int | None  # the version that is called there now
    now: str | None  # the configuration that is there now, whatever left it so
    before: str | None  # the configuration to go back to when it comes to nothing; None where the model is new
    first: str  # the configuration under which old and new serve, and calls by an alias still go to the old one
    last: str  # the one under which they go to the new one, and the newest is the new one
    fresh: bool  # whether nobody has been seen to serve the version yet

    def is_there(self, manifest: Manifest) -> bool:
        """Whether the version lies in the repository; while it is not served, with all files: an upload may be cut."""
        configs = self.repository.configs
        if self.number not in self.repository.versions(self.target.model):
            return False
        if self.now is not None and self.number in configs.read_published(self.now).served:
            return True
        there = {file.path for file in self.repository.files(self.target.model)}
        return all(published_path(file.path, self.number) in there for file in manifest.files)

    @property
    def peak(self) -> int:
        """How many versions are loaded at one time, at the most, while it comes in."""
        way = [text for text in (self.before, self.first, self.last) if text is not None]
        pairs = zip([None, *way], way, strict=False)
        return max(self.repository.configs.loaded_at_once(one, other) for one, other in pairs)

    def put_back(self) -> str:
        """Have the servers serve what they served before, and nothing else; the version stays, for the next run.

        Return what is so then.
        """
        repository, model, configs = self.repository, self.target.model, self.repository.configs
        text, follows = repository.config(model), self.target.kind.follows_repository
        if text == self.before:
            return "what served before serves on"  # nothing was written
        if self.before is not None and configs.read_published(self.before).served:
            repository.write_config(model, self.before)
        else:
            repository.withdraw(model)  # Triton would try to load it again and again
            if follows:
                return (
                    "where nothing served before, it may answer until its servers have looked at the repository again"
                )
        is_newest = self.target.newest and self.number == max(configs.read_published(self.first).served)
        if follows and (text == self.last or (text == self.first and is_newest)):
            return f"where calls may have been answered by version {self.number}, what served before serves again"
        return "what served before serves on"


def make_plan(target: Target, repository: Repository, number: int, entry_config: str, had: History) -> Plan:
    """Return the plan for a version whose entry has this configuration.

    Raises UsageError for a model that somebody else put there.
    """
    model, configs = target.model, repository.configs
    there = frozenset(repository.versions(model))
    text = repository.config(model)
    published = configs.read_published(text) if text is not None else None
    if (published is None and there) or (published is not None and published.owner is None):
        what = f"a model {model} lies in the repository that was not published by tidegate"
        why = "what it is made of is in no registry, so that it could be neither verified nor brought back"
        do = "register it; then, when nobody needs it for a minute, move its folder away and run the command again"
        raise UsageError(what, where=repository.where, why=why, do=do)
    aliases = published.aliases if published is not None else {}
    old = version_called(target, published, had.current)
    named = set(target.named & there)
    served = set(published.served) if published is not None else set()
    # A version that is called already stays as it is, with what a rollback goes back to. A run that was killed after
    # its cut-over left the version that the records tell, which proxies may still call.
    kept = named | (served & (had.ever if number == old == had.current else {old, had.current}))

    def aliased(to: int | None) -> dict[str, int]:
        return {} if to is None else dict.fromkeys(target.aliases & aliases.keys(), to)

    def config(served: set[int], names: Mapping[str, int]) -> str:
        return configs.published_config(entry_config, model=model, owner=number, served=served, aliases=names)

    after = {each for each in named if each < number} if target.newest else kept
    last = config(after | {number}, dict.fromkeys(target.aliases, number))
    first = config(kept | {number}, aliased(old))
    fresh = published is None or number not in published.served or number not in had.ever
    before = None
    if number == old and number not in (had.current, had.named):
        # An earlier run had calls go to the version already, and did not come to its end.
        back = had.current if had.current in there else None
        left = named | ({back} if back is not None else set())
        before = config_of(repository, model, left, back, aliased(back))
    elif published is not None:
        # Not the configuration of a run that stopped half way, but the one before.
        half = set(published.served) - had.ever - target.named - {old, *aliases.values()}
        before = text if not half else config_of(repository, model, set(published.served) - half, old, aliases)
    return Plan(target, repository, number, old, text, before, first, last, fresh)


def version_called(target: Target, published: Published | None, recorded: int | None) -> int | None:
    """Return the version that is called: its alias says it, else the records if it is served, else it is the newest."""
    if published is None:
        return None
    found = [published.aliases[name] for name in sorted(target.aliases) if name in published.aliases]
    if found:
        return found[0]
    if recorded in published.served:
        return recorded
    return max(published.served, default=None) if target.newest else None


def config_of(
    repository: Repository, model: str, served: Collection[int], called: int | None, aliases: Mapping[str, int]
) -> str | None:
    """Return the configuration under which these versions serve; None where there are none."""
    if not served:
        return None
    owner = called if called is not None else max(served)
    text = published_entry_config(repository, model, owner)
    return repository.configs.published_config(text, model=model, owner=owner, served=served, aliases=aliases)


def published_entry_config(repository: Repository, model: str, number: int) -> str:
    """Return the configuration of a published version's entry; an empty one where it has none. Raises UsageError."""
    path = published_path(repository.configs.CONFIG, number)
    if all(file.path != path for file in repository.files(model)):
        return ""
    return _text(repository.read(model, path), repository.configs.CONFIG, f"{repository.where}/{model}/{path}")


def registered_config(registry: Registry, version: RegisteredVersion, manifest: Manifest, name: str) -> str:
    """Return the configuration as it was registered; an empty one where the entry has none. Raises UsageError."""
    if all(file.path != name for file in manifest.files):
        return ""  # the server makes one up
    where = f"{registry.where}: version {version.number} of {version.model}"
    return _text(registry.read_file(version, name), name, where)


def _text(content: bytes, name: str, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        do = "mend the entry, and register it again"
        raise UsageError(f"{name} is no text in UTF-8", where=where, why=str(error), do=do) from None
