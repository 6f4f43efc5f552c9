"""The plan for one repository: its configuration before the change, while both versions are served, and afterwards.

Triton reloads every served version if anything but the set of served versions changes. So the plan changes nothing else
unnecessarily: the configuration has an alias only if the definition calls the model by one.
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
    """The versions that an environment has and had, from the registry's records."""

    current: int | None = None  # the version that the environment has
    ever: frozenset[int] = frozenset()
    """Versions whose deployment was completed."""
    named: int | None = None
    """The version of the registry's alias, which moves only after calls went to that version."""


@dataclass(frozen=True)
class Plan:
    """The configurations of one repository before, during and after a deployment."""

    target: Target
    repository: Repository
    number: int
    old: int | None  # The version that is called now.
    now: str | None  # The current configuration, even if an interrupted run wrote it.
    before: str | None  # The configuration to restore after a failure. None for a new model.
    first: str  # Serves old and new. Calls by an alias still go to the old version.
    last: str  # Calls by an alias, and calls of the newest version, go to the new one.
    fresh: bool  # Whether no completed deployment has served the version.

    def is_there(self, manifest: Manifest) -> bool:
        """Whether the version is in the repository, complete if it is not served: an upload may have stopped."""
        configs = self.repository.configs
        if self.number not in self.repository.versions(self.target.model):
            return False
        if self.now is not None and self.number in configs.read_published(self.now).served:
            return True
        there = {file.path for file in self.repository.files(self.target.model)}
        return all(published_path(file.path, self.number) in there for file in manifest.files)

    @property
    def peak(self) -> int:
        """The highest number of versions in memory at one time during the deployment."""
        way = [text for text in (self.before, self.first, self.last) if text is not None]
        pairs = zip([None, *way], way, strict=False)
        return max(self.repository.configs.loaded_at_once(one, other) for one, other in pairs)

    def put_back(self) -> str:
        """Serve only what was served before, and describe the result. The version's files stay for the next run."""
        repository, model, configs = self.repository, self.target.model, self.repository.configs
        text, follows = repository.config(model), self.target.kind.follows_repository
        if text == self.before:
            return "the served versions are unchanged"  # nothing was written
        if self.before is not None and configs.read_published(self.before).served:
            repository.write_config(model, self.before)
        else:
            repository.withdraw(model)  # otherwise Triton would retry the load forever
            if follows:
                return "on servers without an earlier version, it can answer until they poll the repository again"
        is_newest = self.target.newest and self.number == max(configs.read_published(self.first).served)
        if follows and (text == self.last or (text == self.first and is_newest)):
            return (
                f"on servers where version {self.number} may have answered calls, the earlier version is served again"
            )
        return "the served versions are unchanged"


def make_plan(target: Target, repository: Repository, number: int, entry_config: str, had: History) -> Plan:
    """Return the plan for a version whose entry has this configuration. Raises UsageError if the repository has a model
    that Tidegate did not publish."""
    model, configs = target.model, repository.configs
    there = frozenset(repository.versions(model))
    text = repository.config(model)
    published = configs.read_published(text) if text is not None else None
    if (published is None and there) or (published is not None and published.owner is None):
        what = f"the repository has a model {model} that tidegate did not publish"
        why = "it is in no registry, so it could be neither verified nor restored"
        do = "register it. Then move its directory away while it is not in use, and run the command again"
        raise UsageError(what, where=repository.where, why=why, do=do)
    aliases = published.aliases if published is not None else {}
    old = version_called(target, published, had.current)
    named = set(target.named & there)
    served = set(published.served) if published is not None else set()
    # Keep a version that is called already, and the version that a rollback needs. After its switch, a killed run left
    # the recorded version too, because proxies may still call it.
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
        # An earlier run switched calls to the version, but was not completed.
        back = had.current if had.current in there else None
        left = named | ({back} if back is not None else set())
        before = config_of(repository, model, left, back, aliased(back))
    elif published is not None:
        # Restore the configuration before an interrupted run, not the one that it left.
        half = set(published.served) - had.ever - target.named - {old, *aliases.values()}
        before = text if not half else config_of(repository, model, set(published.served) - half, old, aliases)
    return Plan(target, repository, number, old, text, before, first, last, fresh)


def version_called(target: Target, published: Published | None, recorded: int | None) -> int | None:
    """Return the version that is called: the alias's, else the recorded one if it is served, else the newest."""
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
    """Return the configuration that serves these versions, or None without versions."""
    if not served:
        return None
    owner = called if called is not None else max(served)
    text = published_entry_config(repository, model, owner)
    return repository.configs.published_config(text, model=model, owner=owner, served=served, aliases=aliases)


def published_entry_config(repository: Repository, model: str, number: int) -> str:
    """Return the configuration in a published version's entry. Empty if it has none. Raises UsageError."""
    path = published_path(repository.configs.CONFIG, number)
    if all(file.path != path for file in repository.files(model)):
        return ""
    return _text(repository.read(model, path), repository.configs.CONFIG, f"{repository.where}/{model}/{path}")


def registered_config(registry: Registry, version: RegisteredVersion, manifest: Manifest, name: str) -> str:
    """Return the registered configuration of a version. Empty if the entry has none. Raises UsageError."""
    if all(file.path != name for file in manifest.files):
        return ""  # the server generates one
    where = f"{registry.where}: version {version.number} of {version.model}"
    return _text(registry.read_file(version, name), name, where)


def _text(content: bytes, name: str, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        do = "correct the entry, and register it again"
        raise UsageError(f"{name} is not valid UTF-8", where=where, why=str(error), do=do) from None
