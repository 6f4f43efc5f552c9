"""What is served where, and how much it is used: asked of the proxies, which ask their servers. Nothing is loaded."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import Field
from tidegate_contracts.environments import ModelFacts, Plane
from tidegate_contracts.message import Message
from tidegate_contracts.whereabouts import PlaceState, VisibleModel

from .calling.credentials import Credential, find_credential
from .calling.proxy import VARIABLE, ProxyClient, proxy_url
from .environments import ENVIRONMENTS, environment, load
from .errors import BusyError, NotFoundError, TidegateError, UnreachableError, UsageError
from .kinds import KINDS, TRITON
from .names import nearest_of
from .parallel import in_parallel
from .server_kind import ServerKind


@dataclass(frozen=True)
class KnownProxy:
    """The inference proxy of an environment on one data plane."""

    environment: str  # empty where only the proxy's address is known
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None  # what the definition says of it, where that is known

    @cached_property
    def models(self) -> "dict[Key, ModelFacts]":
        """What the definition says of its models, by server and name."""
        return {} if self.facts is None else {(each.server, each.name): each for each in self.facts.models}

    def traffic(self, server: str | None, model: str, config: Mapping[str, Any]) -> str:
        """Return what decides which version of a model answers, in words; nothing where that is not known.

        `config` is the model's configuration, where it is at hand: it has what an alias stands for.
        """
        if (facts := self.models.get((server, model))) is None:
            return ""
        if facts.versions:
            return ", ".join(f"{share.weight} % {share.version}" for share in facts.versions)
        if facts.alias is not None:
            value = self.kind_of(server).alias_of(config, facts.alias)
            return f"{facts.alias} → {value}" if str(value).isdecimal() else facts.alias
        return "newest"

    def own_name(self, name: str) -> str:
        """Return the name of the model that calls name so, where that is known; else what was said."""
        models = sorted(self.models.values(), key=lambda each: each.name != name)  # a name of its own comes first
        return next((each.name for each in models if name in each.names), name)

    def kind_of_model(self, model: str) -> ServerKind:
        """Return the kind of the server that has a model; Triton where that cannot be told."""
        return self.kind_of(next((server for server, name in self.models if name == model), None))

    def kind_of(self, server: str | None) -> ServerKind:
        """Return the kind of a server; Triton where that cannot be told, or is none that is known here."""
        servers = () if self.facts is None else self.facts.servers
        return KINDS.get(next((each.kind for each in servers if each.name == server), TRITON), KINDS[TRITON])

    def client(self, seconds: float, *, waits: bool = True) -> ProxyClient:
        """Return a client of it, whose calls take so many seconds at most; for `waits` see `ProxyClient`."""
        return ProxyClient(self.url, self.credential, seconds=seconds, waits=waits)


def proxies(
    name: str | None = None, plane: str | None = None, url: str | None = None, *, file: Path | None = None
) -> list[KnownProxy]:
    """Return the proxy at `url`; or those of an environment; or, with neither, of every environment that is known.

    `file` is the path of `environments.json`, by default that of TIDEGATE_ENVIRONMENTS. Raises UsageError,
    NotFoundError.
    """
    if url is not None:
        if name is not None or plane is not None:
            raise UsageError("the proxy's address says where: leave the environment and the data plane out")
        return [KnownProxy("", "", proxy_url(url), find_credential())]
    is_named = file is not None or ENVIRONMENTS in os.environ
    if name is None and plane is None and not is_named and os.environ.get(VARIABLE):
        return proxies(url=os.environ[VARIABLE])
    known = load(file)
    credential = find_credential()
    wanted = known.environments if name is None else (environment(name, known),)
    found = [
        KnownProxy(each.name, at.name, proxy_url(at.proxy_url), credential, at)
        for each in wanted
        for at in sorted(each.planes, key=lambda at: at.wave)
        if plane is None or at.name == plane
    ]
    if not found:
        planes = sorted({at.name for each in wanted for at in each.planes})
        what = "the environment lives nowhere" if plane is None else f"there is no data plane {plane!r}"
        raise NotFoundError(what, do="" if plane is None else nearest_of(plane, planes, "data planes"))
    return found


def proxy_of(
    model: str, name: str | None = None, plane: str | None = None, url: str | None = None, *, file: Path | None = None
) -> KnownProxy:
    """Return the one proxy at which a model is called.

    Without a word of where, it is the one that DOMINO_INFERENCE_PROXY names, as of a model endpoint; else the first
    data plane of the environment that has the model, if no other environment has it too. Raises UsageError,
    NotFoundError.
    """
    if name is None and plane is None and url is None:
        url = os.environ.get(VARIABLE) or None
    found = proxies(name, plane, url, file=file)
    if url is not None:
        return found[0]
    pairs = [(name, each) for each in found for facts in each.models.values() for name in facts.names]
    having = [each for name, each in pairs if name == model]
    if not having:
        do = nearest_of(model, sorted({name for name, _ in pairs}), "models")
        raise NotFoundError(f"no environment that was asked has the model {model!r}", do=do)
    if len(environments := dict.fromkeys(each.environment for each in having)) > 1:
        what = f"the model {model} is in {', '.join(environments)}"
        raise UsageError(what, do=f"say which with --environment, or set {VARIABLE}")
    return having[0]


ANSWER_SECONDS: Final = 15.0
Loading = Literal["preload", "on-demand"]
Statistics = dict[str, dict[str, float]]  # What was counted of one model, by version: `ServerKind.counts`
Key = tuple[str | None, str]  # server, where it is known, and model


class VersionStatus(Message):
    """One version of a model; counts are since it was loaded, of one replica, and None where its server tells none."""

    version: str
    ready: bool | None = None  # whether it is in memory; None of a model that loads when it is called, and is cold
    requests: int | None = None  # those that were answered
    failures: int | None = None
    rows: int = 0  # rows of batches in them
    mean_seconds: float | None = None  # of an answered request, in Triton
    queue_seconds: float | None = None  # what of that it waited for its turn
    last_used: datetime | None = None


class ModelStatus(Message):
    """One model on one data plane."""

    environment: str
    plane: str
    model: str
    server: str | None = None
    pool: str | None = None
    loading: Loading | None = None
    state: PlaceState | Literal["hidden"] | str
    """As in `GET /models` of the proxy: that of the replica where it is nearest to use. `hidden`: the caller may not
    see the model."""
    why: str = ""  # Why it is not resident.
    traffic: str  # what decides which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`
    versions: tuple[VersionStatus, ...] = ()

    @property
    def requests(self) -> int:
        """How many were answered by its versions."""
        return sum(each.requests or 0 for each in self.versions)


class AskedPlane(Message):
    """One environment on one data plane, as its proxy was asked about it."""

    environment: str
    plane: str
    proxy: str
    error: str = ""  # why nothing could be learned
    exit_code: int = 0  # with which `tidegate` ends for that


Found = TypeVar("Found", bound=AskedPlane)
Question = Callable[[KnownProxy, ProxyClient], Iterator[dict[str, Any]]]


def ask_each(asked: Sequence[KnownProxy], seconds: float, kind: type[Found], question: Question) -> list[Found]:
    """Ask all proxies at the same time; one that gives no answer in so many seconds says why, and hides no other.

    `question` yields fields of `kind` as soon as it knows them; a failure later on keeps them.
    """

    def one(proxy: KnownProxy) -> Found:
        about: dict[str, Any] = {"environment": proxy.environment, "plane": proxy.plane, "proxy": proxy.url}
        try:
            with proxy.client(seconds, waits=False) as client:
                for fields in question(proxy, client):
                    about |= fields
        except TidegateError as error:
            about |= {"error": str(error), "exit_code": error.exit_code}
        return kind(**about)

    return in_parallel(one, asked)


class PlaneStatus(AskedPlane):
    """How much its models are used."""

    caller: str = ""  # the name by which the proxy knows the caller
    unavailable: tuple[str, ...] = ()  # pools that gave no statistics, as `server/pool`
    away: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Why replicas do not answer, or do not say what they have, by `server/pool`."""
    models: tuple[ModelStatus, ...] = ()  # those with the most answered requests first


def collect(asked: Sequence[KnownProxy], model: str | None = None) -> list[PlaneStatus]:
    """Return the status of each, asked at the same time; one that cannot be asked says why and hides no other.

    Raises NotFoundError where a model is named that none of those that answered has.
    """
    found = ask_each(asked, ANSWER_SECONDS, PlaneStatus, lambda proxy, client: _status(proxy, client, model))
    if model is not None and not any(each.models or each.error for each in found):
        raise NotFoundError(f"there is no model {model!r}", do="`tidegate models` shows all that you may see")
    return found


def _status(proxy: KnownProxy, client: ProxyClient, model: str | None) -> Iterator[dict[str, Any]]:
    caller = client.whoami()
    environment = proxy.environment or caller.environment
    yield {"environment": environment, "caller": caller.principal}
    collector = _Collector(client, proxy, model and proxy.own_name(model))
    counts = collector.count()
    found = in_parallel(lambda key: collector.model(key, counts[key]), sorted(counts, key=str))
    models = [ModelStatus(environment=environment, plane=proxy.plane, **each) for each in found]
    yield {
        "unavailable": tuple(sorted(collector.unavailable)),
        "away": collector.away(),
        "models": tuple(sorted(models, key=lambda each: (-each.requests, each.model))),
    }


@dataclass
class _Collector:
    """Asks one proxy of one model, or of all."""

    client: ProxyClient
    proxy: KnownProxy
    only: str | None
    unavailable: set[str] = field(default_factory=set)  # pools that gave no statistics, as `server/pool`

    @cached_property
    def places(self) -> dict[Key, VisibleModel]:
        """Where the proxy finds each model that the caller may inspect."""
        try:
            found = self.client.whereabouts(self.only)
        except NotFoundError:
            return {}
        return {(each.server, each.model): each for each in found.models}

    @cached_property
    def known(self) -> dict[Key, tuple[str, Loading | None]]:
        """The pool of each model and how that loads, as the definition says; where that is not at hand, the proxy."""
        if (plane := self.proxy.facts) is not None:
            loading = {(server.name, pool.name): pool.loading for server in plane.servers for pool in server.pools}
            facts = {key: each for key, each in self.proxy.models.items() if self.only in (None, key[1])}
            return {key: (each.pool, loading.get((each.server, each.pool))) for key, each in facts.items()}
        return {key: (each.pool, each.loading) for key, each in self.places.items()}

    def count(self) -> dict[Key, Statistics]:
        """Return the statistics of each model that there is, by version; empty for what is not in memory."""
        found: dict[Key, Statistics] = {key: {} for key in self.known}
        on_demand = {key for key in found if self.known[key][1] == "on-demand"}
        preloaded = found.keys() - on_demand
        for server in sorted({str(server) for server, _ in preloaded}):
            found |= {key: counts for key, counts in self._ask(server, None).items() if key in preloaded}
        # Of an on-demand pool, only the question for one model finds the replica that has it in memory.
        for key in on_demand:
            found |= self._ask(*key)
        return found

    def model(self, key: Key, counts: Statistics) -> dict[str, Any]:
        """Return the state of a model as the proxy gives it, with what its server has counted of its versions."""
        server, name = key
        facts, at, (pool, loading) = self.proxy.models.get(key), self.places.get(key), self.known[key]
        config: Mapping[str, Any] = {}
        if at is not None and at.state == "resident" and facts is not None and facts.alias:
            with suppress(TidegateError):
                config = self.client.config(name, server=server)
        named = () if facts is None or at is None else tuple(str(share.version) for share in facts.versions)
        there = frozenset(str(version) for place in at.places for version in place.versions) if at else frozenset()
        # A model that loads on demand is loaded when it is called: until then no version is ready or not.
        is_known = loading != "on-demand" or bool(there)
        return {
            "model": name,
            "server": server,
            "pool": pool,
            "loading": loading,
            "state": "hidden" if at is None else at.state,
            "why": "" if at is None else at.why,
            "traffic": self.proxy.traffic(server, name, config),
            "versions": tuple(
                _version(number, number in there if is_known else None, counts.get(number))
                for number in sorted({*counts, *named, *there}, key=_by_number)
            ),
        }

    def away(self) -> dict[str, tuple[str, ...]]:
        """Return why replicas do not answer, or do not state what they have, of each pool that has such replicas."""
        found: dict[str, dict[str, None]] = {}
        for model in self.places.values():
            for place in model.places:
                if place.state in ("unreachable", "unseen"):
                    at = f"{model.server}/{place.pool or model.pool}"
                    found.setdefault(at, {})[place.why or f"{place.replica} is {place.state}"] = None
        return {at: tuple(whys) for at, whys in found.items()}

    def _ask(self, server: str | None, model: str | None) -> dict[Key, Statistics]:
        """Return the statistics of a model, or of all models of a server."""
        try:
            statistics = self.client.statistics(model, server=server)
        except NotFoundError:
            return {}  # nothing there that this caller may inspect
        except (BusyError, UnreachableError):
            pools = {pool for key, (pool, _) in self.known.items() if key[0] == server and model in (None, key[1])}
            self.unavailable |= {f"{server}/{pool}" for pool in pools}
            return {}
        self.unavailable |= set(statistics.unavailable)
        found: dict[Key, Statistics] = {}
        for entry in statistics.models:
            counts = self.proxy.kind_of(server).counts(entry)
            found.setdefault((server, str(entry["name"])), {})[str(entry.get("version", ""))] = counts
        return found


def _by_number(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else 0), version


def _version(number: str, ready: bool | None, counts: dict[str, float] | None) -> VersionStatus:
    if counts is None:
        return VersionStatus(version=number, ready=ready)
    answered, last = counts["requests"], counts["last_used"]
    return VersionStatus(
        version=number, ready=ready,
        requests=int(answered), failures=int(counts["failures"]), rows=int(counts["rows"]),
        mean_seconds=counts["seconds"] / answered if answered else None,
        queue_seconds=counts["queued"] / answered if answered else None,
        last_used=datetime.fromtimestamp(last, UTC) if last else None,
    )  # fmt: skip
