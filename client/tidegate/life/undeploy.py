"""Removes a model from an environment. The registry keeps every version. When it ends, no server serves the model.

It works like `publish`: the same permission and locks, checks before writes, and restored configurations after a
failure. After a killed run, the next run completes the removal.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from tidegate_contracts.environments import DatasetLocation

from ..errors import NotFoundError, RefusedError, UnreachableError, UsageError
from ..publishing import Repository
from ..registry import Record
from .context import Context
from .deploy import may
from .publish import Outcome, attempted, put_back_on_failure
from .ready import PRELOAD, places_of, wait_until_withdrawn
from .rules import current, of_environment
from .target import Placement, Target, homes, targets


@dataclass(frozen=True)
class _Leaving:
    """One repository, and its current configuration of the model."""

    target: Target
    repository: Repository
    now: str | None
    served: tuple[int, ...] = ()  # versions that are served before the removal

    def put_back(self) -> str:
        if self.now is None or self.repository.config(self.target.model) == self.now:
            return ""
        self.repository.write_config(self.target.model, self.now)
        return "its configuration is restored, and servers that had unloaded it load it again"


def undeploy(context: Context, model: str, environment: str) -> Outcome:
    """Remove a model from an environment. No server serves it there when this returns.

    If all its servers poll the repository and have unloaded it, its files are removed too. Otherwise they stay until
    `tidegate prune`. Raises TidegateError: NotFoundError if the environment has no version of it, BusyError if another
    publisher holds the lock, UnfinishedError if it failed on the way.
    """
    of = context.environment(environment)
    if blind := [home for home in homes(of, model) if not _sees_withdrawals(home)]:
        what = f"the definition decides what {blind[0].server.name} serves, so `undeploy` cannot remove {model}"
        do = f"have the platform admin remove {model} from `models` of {of.name}"
        raise RefusedError(what, why="its servers do not notice that a model leaves their repository", do=do)
    who = may(context, of, model).principal
    everywhere = targets(of, model)
    repositories = {target.key: context.repository(target.homes[0]) for target in everywhere}
    with ExitStack() as locks:
        for key in sorted(repositories):
            locks.enter_context(repositories[key].lock(model, who))
        records, expected = context.records(model), context.alias(model, of.name)
        leaving = [_leaving(each, repositories[each.key]) for each in everywhere]
        number = current(records, of.name) or expected
        if number is None:
            raise NotFoundError(f"{of.name} has no version of {model}", do=f"tidegate history {model}")
        version = context.registry.version(model, number)
        reading = [(each, home) for each in leaving for home in each.target.homes]
        unused: list[Repository] = []
        for _, home in reading:
            unseen = [place.replica for place in places_of(context, home) if place.state == "unseen"]
            if unseen:
                what = f"the proxy does not know whether {model} is still served, so nothing was changed"
                do = f"run `tidegate why {model} --environment {of.name}` to see why"
                raise UnreachableError(what, where=home.plane.name, why=f"unseen: {', '.join(unseen)}", do=do)
        what = f"{model} was not removed from {of.name}"
        if not any(each.served for each in leaving):  # a killed run had removed it from the repositories
            what = f"{model} is not yet removed from {of.name}"
        ways_back = {each.repository.where: each.put_back for each in leaving}
        with attempted(context, "undeploy", version, of, who), put_back_on_failure(context, what, ways_back, ()):
            for each in leaving:
                context.tell(f"removing {model} from {each.repository.where}")
                if each.now is not None:
                    each.repository.withdraw(model)
            for each in leaving:
                gone = True
                for home in each.target.homes:
                    gone = wait_until_withdrawn(context, home, {number, *each.served}) and gone
                polls = any(home.pool.loading == PRELOAD for home in each.target.homes)
                if gone and polls:
                    unused.append(each.repository)
            context.registry.remove_alias(model, of.name, expect=expected)
        when = max((each.when for each in records), default=None)
        for _, home in reading:
            if current(records, of.name, home.plane.name) is not None or not of_environment(records, of.name):
                when = context.now_after(when)
                record = Record(
                    what="undeploy", model=model, version=number, who=who, when=when,
                    environment=of.name, plane=home.plane.name, proxy=home.plane.proxy_url,
                    manifest_sha256=version.manifest_sha256,
                )  # fmt: skip
                context.registry.append_record(version, record)
        for repository in unused:  # Last, because removed files cannot be restored.
            repository.remove_model(model)
    return Outcome(
        what="undeploy", model=model, version=number, environment=of.name, previous=number, changed=True, who=who,
        planes=tuple(home.plane.name for _, home in reading),
    )  # fmt: skip


def _sees_withdrawals(home: Placement) -> bool:
    """Return whether its servers unload a withdrawn model. On-demand pools do not poll buckets."""
    is_folder = isinstance(home.server.location, DatasetLocation)
    return home.kind.follows_repository and (home.pool.loading == PRELOAD or is_folder)


def _leaving(target: Target, repository: Repository) -> _Leaving:
    """Return the current state of a repository. Raises UsageError if Tidegate did not publish the model there."""
    model, configs = target.model, repository.configs
    text = repository.config(model)
    if text is None:
        return _Leaving(target, repository, None)
    published = configs.read_published(text)
    if published.owner is None:
        what = f"the repository has a model {model} that tidegate did not publish"
        do = "move its directory away while it is not in use"
        raise UsageError(what, where=repository.where, why="it could not be restored", do=do)
    return _Leaving(target, repository, text, published.served)
