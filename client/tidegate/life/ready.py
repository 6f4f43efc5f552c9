"""Waits, through the proxy, until servers serve a version, call it by default, or no longer serve a model."""

import time
from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Final

from tidegate_contracts.whereabouts import Place

from .. import errors
from ..registry import Golden
from .context import Context
from .target import Placement

LOOK_SECONDS = 0.25
ANSWER_SECONDS = 10.0
PRELOAD: Final = "preload"
_GONE: Final = frozenset({"cold", "unknown", "quarantined", "queued", "failed", "unreachable"})
"""States of a model at a replica in which it answers no calls."""


class _StillServedError(errors.BusyError):
    """A replica still serves a model that was withdrawn."""


def until_served(context: Context, home: Placement, number: int, *, fresh: bool) -> str | None:
    """Wait until a version is served, a fresh one at every replica. Raises UnfinishedError on timeout. Returns a
    warning if this cannot be observed."""
    model, proxy = home.model.name, context.proxy(home.plane)
    missing = f"version {number} is not ready"
    if not home.kind.follows_repository:
        if number not in home.named:
            try:  # the definition may be newer than environments.json
                _loaded(context, home, number)
            except errors.NotFoundError:
                raise _unnamed(home, number) from None
        _until(context, home, lambda: _loaded(context, home, number), missing, 0)
        return None
    # A load that failed before this change may succeed at the next poll. One that fails after it will not.
    before = home.pool.loading == PRELOAD and _why_failed(context, home, number)
    # Proxies report whole seconds, and may have collected the state before the configuration was written.
    tried = time.monotonic() + look_seconds(context, home) + 1 if before else -inf

    def described() -> bool:
        return bool(proxy.metadata(model, server=home.server.name, version=number, deadline=ANSWER_SECONDS))

    def ready() -> bool:
        if proxy.ready(model, server=home.server.name, version=number, deadline=ANSWER_SECONDS):
            return True
        try:  # this error has more details
            described()
        except errors.NotFoundError as error:
            raise errors.NotFoundError("the inference server has not found it in its repository yet") from error
        except errors.UnreachableError as error:
            if home.kind.configs.NOT_READY not in error.why:
                raise
            if why := _why_failed(context, home, number, tried):
                raise _not_loaded(home, missing, why) from error
            what = "the inference server is still loading it, or cannot load it"
            raise errors.UnreachableError(what) from error
        return False

    if home.pool.loading != "on-demand":
        # Each replica polls on its own schedule, and any of them may answer.
        steady = look_seconds(context, home) if fresh else 0
        _until(context, home, ready, missing, steady)
    elif home.follows == "shares" and number not in home.named:
        only = f"{_where(home)} loads only versions in the definition"
        return f"{only}. Version {number} is not among them yet, so it was not tested there"
    else:
        # A readiness request would load nothing. A metadata request does, so this is a real load.
        _until(context, home, described, missing, 0)
    return None


def _loaded(context: Context, home: Placement, number: int) -> bool:
    """Return whether every replica of a running pool serves a version. Raises NotFoundError if none does."""
    found = context.proxy(home.plane).whereabouts(home.model.name, server=home.server.name, deadline=ANSWER_SECONDS)
    places = [place for each in found.models for place in each.places if place.state != "unreachable"]
    pools = {place.pool for place in places if number in place.versions}
    here = [place for place in places if place.pool in pools]
    if not here:
        raise errors.NotFoundError("; ".join(each.why for each in found.models if each.why) or "no engine serves it")
    return all(number in place.versions for place in here)


def _unnamed(home: Placement, number: int) -> errors.UnfinishedError:
    model, server = home.model, home.server.name
    why = f"its files are in the repository, but {server} loads the versions of the definition when an engine starts"
    line = f"{{version: {number}, weight: 0, pool: <a pool of {server}>}}"
    if not model.versions:
        line = f"{{version: {number}, weight: 100}}"
    do = f"have the platform admin add to `versions` of the model {model.name} in the definition, and apply it:"
    do += f"\n      - {line}\n    Then run the same command again"
    return errors.UnfinishedError(f"no engine serves version {number} yet", where=_where(home), why=why, do=do)


def until_called(context: Context, home: Placement, number: int) -> None:
    """Wait until calls without a version go to this version. Raises UnfinishedError."""
    model, server, proxy = home.model.name, home.server.name, context.proxy(home.plane)

    def is_called() -> bool:
        if home.model.alias is not None:
            config = proxy.config(model, server=server, deadline=ANSWER_SECONDS)
            return home.kind.alias_of(config, home.model.alias) == str(number)
        versions = proxy.metadata(model, server=server, deadline=ANSWER_SECONDS).get("versions", [])
        return max(map(int, versions), default=0) == number

    if home.follows != "shares":
        context.tell(f"waiting until calls go to version {number} on {home.plane.name}")
        _until(context, home, is_called, f"calls do not go to version {number} yet", 0)


def answers(context: Context, home: Placement, number: int, golden: Golden) -> None:
    """Send the golden request to a version. Raises UnfinishedError if it fails or its response differs."""
    try:
        about = {"server": home.server.name, "version": number, "deadline": context.wait_seconds}
        answer = home.kind.ask(context.proxy(home.plane), home.model.name, golden.request, **about)
    except errors.TidegateError as error:
        what = f"version {number} does not answer its golden request"
        raise errors.UnfinishedError(what, where=_where(home), why=str(error)) from None
    if wrong := golden.differences(answer):
        what = f"version {number} answers its golden request differently than at registration"
        do = "if the golden request is another version's, register again with the right --golden. Otherwise compare "
        do += "the libraries of the inference server with those that made the model"
        raise errors.UnfinishedError(what, where=_where(home), why="; ".join(wrong[:5]), do=do)


def wait_until_withdrawn(context: Context, home: Placement, versions: Collection[int]) -> bool:
    """Wait until no replica serves a withdrawn model. Raises UnfinishedError on timeout.

    A failed query counts as a replica that still serves it. Returns whether all replicas could be queried. If so, no
    polling replica is loading the model or about to: during a second load, a replica still serves the first one.
    """
    polls = home.pool.loading == PRELOAD
    places: list[Place] = []

    def is_gone() -> bool:
        nonlocal places
        places = places_of(context, home)
        if there := _serving(context, home, places, versions if polls else ()):
            raise _StillServedError(", ".join(there))
        return True

    context.tell(f"waiting until nothing serves {home.model.name} on {home.plane.name}")
    # A replica that polled just before the change does not know of it, and may start a load a moment later.
    steady_seconds = look_seconds(context, home) if polls else 0.0
    do = f"run `tidegate why {home.model.name} --environment {home.environment.name}` to see who uses it"
    unseen = "the proxy could not confirm that no server serves it"
    _until(context, home, is_gone, "it is still served", steady_seconds, do, unseen)
    return all(each.state != "unreachable" for each in places)


def places_of(context: Context, home: Placement) -> list[Place]:
    """Return the state of the model at each replica of its pool. Raises TidegateError."""
    found = context.proxy(home.plane).whereabouts(home.model.name, server=home.server.name)
    return [place for each in found.models if each.pool == home.model.pool for place in each.places]


def _serving(context: Context, home: Placement, places: Collection[Place], versions: Iterable[int]) -> list[str]:
    """Return the replicas that may answer calls, by their state or by their readiness for these versions."""
    proxy, server, model = context.proxy(home.plane), home.server.name, home.model.name
    if all(each.state == "unreachable" for each in places):
        return []  # no replica receives calls, and none can be queried
    return [f"{each.replica} ({each.state})" for each in places if each.state not in _GONE] or [
        f"a replica of {server}/{home.pool.name} is ready for calls of version {version}"
        for version in versions
        if proxy.ready(model, server=server, version=version, deadline=ANSWER_SECONDS)
    ]


def _why_failed(context: Context, home: Placement, number: int, since: float = -inf) -> str:
    """Return why a replica could not load a version. Empty if unknown: older proxies do not report it. Ignores what the
    proxy collected before `since` (monotonic)."""
    queried = time.monotonic()
    try:
        found = context.proxy(home.plane).whereabouts(home.model.name, server=home.server.name, deadline=ANSWER_SECONDS)
    except errors.TidegateError:
        return ""
    places = (place for each in found.models if each.pool == home.model.pool for place in each.places)
    new = (place for place in places if queried - (place.seen_seconds or 0) >= since)
    failures = (each for place in new for each in place.failures if not each.retrying)
    return next((each.why for each in failures if each.version in (number, None)), "")


def _not_loaded(home: Placement, what: str, why: str) -> errors.UnfinishedError:
    do = "correct the model, then register and deploy it again. If the server is at fault, repair it and run the same "
    do += "command again"
    return errors.UnfinishedError(f"{what}: it cannot be loaded", where=_where(home), why=why, do=do)


def _until(
    context: Context,
    home: Placement,
    check: Callable[[], bool],
    what: str,
    steady_seconds: float,
    do: str = "read the log of the inference server, then run the same command again",
    unseen: str = "",
) -> None:
    """Wait until a check holds, and has held for so many seconds. `unseen` replaces `what` if the last check failed. A
    failed load counts only after a whole poll interval: before that, the failure may be an old one."""
    bound, where = context.wait_seconds + look_seconds(context, home), _where(home)
    end = time.monotonic() + bound
    state, since, why, title = "", 0.0, "", what
    while True:
        before, state = state, "not yet"
        try:
            state = "holds" if check() else state
        except errors.LoadFailedError as error:
            state, why = "failed", error.why or error.what
        except (errors.BusyError, errors.NotFoundError, errors.UsageError, errors.UnreachableError) as error:
            why = error.why or error.what
            title = what if isinstance(error, _StillServedError) else unseen or what
        now = time.monotonic()
        since = since if state == before else now
        if state == "holds" and now - since >= steady_seconds:
            return
        if state == "failed" and now - since > look_seconds(context, home) + LOOK_SECONDS:
            raise _not_loaded(home, what, why)
        if now > end and state != "holds":
            why = why or "the inference server has not loaded it, or cannot load it"
            raise errors.UnfinishedError(f"{title} after {bound:.0f} s", where=where, why=why, do=do)
        time.sleep(LOOK_SECONDS)


def look_seconds(context: Context, home: Placement) -> float:
    """Return the seconds in which its servers, or their eviction policies, have read the repository."""
    return (home.pool.poll_seconds or context.poll_seconds) if home.kind.follows_repository else 0.0


def _where(home: Placement) -> str:
    return f"{home.server.name} on {home.plane.name} ({home.plane.proxy_url})"
