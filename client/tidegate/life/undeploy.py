"""Takes a model out of an environment; the registry keeps every version.

Nothing serves it there when this has ended, but for what is told as unverified: another environment reads the
repository, or that is an object store, where nothing makes a server let go of what it has loaded.

It has the care of `publish`: the same permission, the same locks, everything looked at before anything is written, and
every failure puts the configurations back. A run that is killed is ended by the next one.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidegate_contracts.environments import DatasetLocation, Environment
from tidegate_contracts.whereabouts import Place

from ..errors import (
    BusyError,
    NotFoundError,
    RefusedError,
    TidegateError,
    UnfinishedError,
    UnreachableError,
    UsageError,
)
from ..registry import Record
from ..repository import Repository
from .context import Context
from .deploy import may
from .plan import config_of
from .publish import Outcome, attempted
from .ready import ANSWER_SECONDS, LOOK_SECONDS, look_seconds
from .rules import current, of_environment
from .target import Home, Target, homes, targets

_GONE = frozenset({"cold", "unknown", "quarantined", "queued", "failed", "unreachable"})
"""States of a model at a replica, as `whereabouts` tells them, in which no call is answered."""
_PRELOAD: Final = "preload"
_NOT_TOLD = (BusyError, NotFoundError, UnreachableError)
"""What a proxy answers that cannot tell at the moment, as while it is rolled out."""


@dataclass(frozen=True)
class _Leaving:
    """One repository: what it has of the model now, and what is left there."""

    target: Target
    repository: Repository
    now: str | None
    left: str | None  # None where nothing is left to serve: other environments may read the repository too
    served: tuple[int, ...] = ()  # Versions that are served before this.

    def is_awaited(self, home: Home) -> bool:
        """Whether nothing serves the model at a pool once this is written, however much it is used."""
        return self.left is None and isinstance(home.server.location, DatasetLocation)

    def write(self) -> None:
        if self.left is not None:
            self.repository.write_config(self.target.model, self.left)
        elif self.now is not None:
            self.repository.withdraw(self.target.model)

    def put_back(self) -> None:
        if self.now is not None and self.repository.config(self.target.model) != self.now:
            self.repository.write_config(self.target.model, self.now)


def undeploy(context: Context, model: str, environment: str) -> Outcome:
    """Take a model out of an environment; nothing serves it there when this returns, but for what is `unverified`.

    Its files stay for a rollback, until `tidegate prune`. Raises TidegateError: NotFoundError where the environment has
    no version of it, BusyError where somebody else is at it, UnfinishedError where it came to nothing half way.
    """
    of = context.environment(environment)
    if engines := [home for home in homes(of, model) if not home.kind.follows_repository]:
        what = (
            f"what {engines[0].server.name} serves is the definition's to say, and `undeploy` takes nothing out of it"
        )
        do = f"have the platform admin take {model} out of `models` of {of.name}"
        raise RefusedError(what, why="its engines look at no repository once they have started", do=do)
    who = may(context, of, model).principal
    everywhere = targets(of, model, context.known)
    repositories = {target.key: context.repository(target.homes[0]) for target in everywhere}
    with ExitStack() as locks:
        for key in sorted(repositories):
            locks.enter_context(repositories[key].lock(model, who))
        records, expected = context.records(model), context.alias(model, of.name)
        leaving = [_leaving(context, each, repositories[each.key]) for each in everywhere]
        number = current(records, of.name) or expected
        if number is None:
            raise NotFoundError(f"{of.name} has no version of {model}", do=f"tidegate history {model}")
        version = context.registry.version(model, number)
        reading = [(each, home) for each in leaving for home in each.target.homes]
        unverified: list[str] = []
        for each, home in ((each, home) for each, home in reading if each.left is None):
            unseen = [place.replica for place in _places(context, home) if place.state == "unseen"]
            if unseen and each.is_awaited(home):
                what = f"whether {model} is still served could not be told, and nothing was done"
                do = f"tidegate why {model} --environment {of.name} says why not"
                raise UnreachableError(what, where=home.plane.name, why=f"unseen: {', '.join(unseen)}", do=do)
        with attempted(context, "undeploy", version, of, who), _put_back_on_failure(context, model, of, leaving):
            for each in leaving:
                context.tell(f"taking {model} out of {each.repository.where}")
                each.write()
            for each in leaving:
                polling = [home for home in filter(each.is_awaited, each.target.homes) if home.pool.loading == _PRELOAD]
                if each.now is not None and polling:
                    for home in polling:
                        _until(context, home, _loading, "it is still being loaded")
                    each.repository.put_away(model)
            for each, home in reading:
                if each.is_awaited(home):
                    context.tell(f"waiting until nothing serves {model} on {home.plane.name}")
                    # A Triton that polls tells at once that the folder is gone, and lets go when it has looked.
                    polls = home.pool.loading == _PRELOAD
                    serving = partial(_serving, versions={number, *each.served} if polls else ())
                    _until(context, home, serving, "it is still served", look_seconds(home) if polls else 0.0)
                elif why := _why_served(context, each, home):
                    unverified.append(f"{home.plane.name}, {home.server.name}/{home.pool.name}: {why}")
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
    return Outcome(
        what="undeploy", model=model, version=number, environment=of.name, previous=number, changed=True, who=who,
        planes=tuple(home.plane.name for _, home in reading), unverified=tuple(unverified),
    )  # fmt: skip


def _leaving(context: Context, target: Target, repository: Repository) -> _Leaving:
    """Look at a repository; raises UsageError where it is not known what lies there."""
    model, configs = target.model, repository.configs
    text = repository.config(model)
    if text is None:
        return _Leaving(target, repository, None, None)
    published = configs.read_published(text)
    if published.owner is None:
        what = f"a model {model} lies in the repository that was not published by tidegate"
        do = "when nobody needs it, move its folder away"
        raise UsageError(what, where=repository.where, why="it could not be brought back", do=do)
    records = context.records(model, aloud=False)
    kept = {number for home in target.shared for number in home.named}
    for home in target.shared:
        if (number := current(records, home.environment.name, home.plane.name)) is not None:
            kept.add(number)
    kept &= {*published.served}
    shared = {home.model.alias for home in target.shared}
    aliases = {name: number for name, number in published.aliases.items() if name in shared and number in kept}
    return _Leaving(target, repository, text, config_of(repository, model, kept, None, aliases), published.served)


@contextmanager
def _put_back_on_failure(context: Context, model: str, of: Environment, leaving: list[_Leaving]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        left = []
        for each in reversed(leaving):
            try:
                each.put_back()
            except (TidegateError, OSError) as worse:
                left.append(f"{each.repository.where}: {worse}")
        more = ["and its configuration could not be put back: " + "; ".join(left)] if left else []
        what = f"{model} was not taken out of {of.name}: what served before serves on"
        if not any(each.served for each in leaving):  # a run that was killed had taken it out of the repositories
            what = f"{model} is not out of {of.name} yet"
        if not isinstance(error, TidegateError | OSError):
            context.tell("\n    ".join([what, *more]))
            raise
        raise UnfinishedError(what, why="\n    ".join([str(error), *more]), do="run the same command again") from error


def _places(context: Context, home: Home) -> list[Place]:
    found = context.proxy(home.plane).whereabouts(home.model.name, server=home.server.name)
    return [place for each in found.models if each.pool == home.model.pool for place in each.places]


def _loading(context: Context, home: Home) -> list[str]:
    return [f"{each.replica} ({each.state})" for each in _places(context, home) if each.state == "loading"]


def _in_memory(places: Iterable[Place]) -> list[str]:
    return [f"{each.replica} ({each.state})" for each in places if each.state not in _GONE]


def _serving(context: Context, home: Home, versions: Iterable[int]) -> list[str]:
    """Return who may answer calls: what a replica says of itself, or that one is ready for calls of these versions."""
    proxy, server, model, places = context.proxy(home.plane), home.server.name, home.model.name, _places(context, home)
    if all(each.state == "unreachable" for each in places):
        return []  # none gets a call, and none could be asked
    return _in_memory(places) or [
        f"a replica of {server}/{home.pool.name} is ready for calls of version {version}"
        for version in versions
        if proxy.ready(model, server=server, version=version, deadline=ANSWER_SECONDS)
    ]


def _why_served(context: Context, leaving: _Leaving, home: Home) -> str:
    """Return why calls of the model may be answered where nothing is waited for, or nothing."""
    if leaving.left is not None:
        return "another environment reads the repository, and its versions are served"
    until = "it starts anew" if home.pool.loading == _PRELOAD else "nobody uses it for a while"
    try:
        there = ", ".join(_in_memory(_places(context, home)))
    except _NOT_TOLD as error:
        there = f"replicas that could not be asked ({error.why or error.what})"
    return f"{there} may serve what is in memory until {until}" if there else ""


def _until(
    context: Context, home: Home, still: Callable[[Context, Home], list[str]], what: str, steady_seconds: float = 0.0
) -> None:
    """Wait until no replica still does it, nor has for so long. Raises UnfinishedError when one still does.

    A look at which that could not be told counts as one at which one did.
    """
    bound = context.wait_seconds + look_seconds(home)
    begun = since = time.monotonic()
    while True:
        try:
            there = still(context, home)
        except _NOT_TOLD as error:
            there = [f"it could not be told at the last look ({error.why or error.what})"]
        now = time.monotonic()
        since = now if there else since
        if not there and now - since >= steady_seconds:
            return
        if there and now - begun > bound:
            do = f"tidegate why {home.model.name} --environment {home.environment.name} says who holds it"
            why = ", ".join(there)
            raise UnfinishedError(f"{what} after {bound:.0f} s", where=home.plane.name, why=why, do=do)
        time.sleep(LOOK_SECONDS)
