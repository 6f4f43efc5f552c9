"""Collects the state of models from proxies. Loads nothing."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from tidegate_contracts.environments import ModelFacts, Plane
from tidegate_contracts.message import Message
from tidegate_contracts.whereabouts import SliceRoom, VisibleModel, Whereabouts

from .calling.credentials import Credential, find_credential
from .calling.inputs import signature_of
from .calling.proxy import VARIABLE, ProxyClient, proxy_url, served_name
from .environments import ENVIRONMENTS, environment, load
from .errors import NotFoundError, TidegateError, UsageError
from .kinds import KINDS, TRITON
from .names import nearest_of
from .parallel import in_parallel
from .server_kind import ServerKind


@dataclass(frozen=True)
class KnownProxy:
    """The inference proxy of an environment on one data plane."""

    environment: str  # empty if only the proxy's address is known
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None  # from environments.json, if known

    @cached_property
    def models(self) -> "dict[Key, ModelFacts]":
        return {} if self.facts is None else {(each.server, each.name): each for each in self.facts.models}

    def traffic(self, server: str, model: str, config: Mapping[str, Any]) -> str:
        """Describe which version of a model answers. Empty if unknown. `config` is the model's configuration, if
        available. It has the aliases' versions."""
        if (facts := self.models.get((server, model))) is None:
            return ""
        if facts.versions:
            return ", ".join(f"{share.weight} % {share.version}" for share in facts.versions)
        if facts.alias is not None:
            value = self.kind_of(server).alias_of(config, facts.alias)
            return f"{facts.alias} → {value}" if str(value).isdecimal() else facts.alias
        return "newest"

    def own_name(self, name: str) -> str:
        """Return the name of the model that has `name` as a served name, or `name` itself if unknown."""
        models = sorted(self.models.values(), key=lambda each: each.name != name)  # a model's own name comes first
        return next((each.name for each in models if name in each.names), name)

    def kind_of_model(self, model: str) -> ServerKind:
        """Return the kind of the server that serves a model. Triton if unknown."""
        return self.kind_of(next((server for server, name in self.models if name == model), None))

    def kind_of(self, server: str | None) -> ServerKind:
        """Return the kind of a server. Triton if unknown."""
        servers = () if self.facts is None else self.facts.servers
        return KINDS.get(next((each.kind for each in servers if each.name == server), TRITON), KINDS[TRITON])

    def client(self, seconds: float, *, waits: bool = True) -> ProxyClient:
        """Return a client of the proxy with a timeout in seconds. For `waits` see `ProxyClient`."""
        return ProxyClient(self.url, self.credential, seconds=seconds, waits=waits)


def proxies(name: str | None = None, plane: str | None = None, url: str | None = None) -> list[KnownProxy]:
    """Return the proxy at `url`, or an environment's, or all known. Raises UsageError, NotFoundError."""
    if url is not None:
        if name is not None or plane is not None:
            raise UsageError("an environment or data plane cannot be combined with a proxy's address: remove one")
        return [KnownProxy("", "", proxy_url(url), find_credential())]
    if name is None and plane is None and ENVIRONMENTS not in os.environ and os.environ.get(VARIABLE):
        return proxies(url=os.environ[VARIABLE])
    known = load()
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
        what = "the environment has no data plane" if plane is None else f"there is no data plane {plane!r}"
        raise NotFoundError(what, do="" if plane is None else nearest_of(plane, planes, "data planes"))
    return found


def proxy_of(model: str, name: str | None = None, plane: str | None = None, url: str | None = None) -> KnownProxy:
    """Return the proxy to call a model at.

    Without a name, plane or URL, it is the one of DOMINO_INFERENCE_PROXY. If that is unset, it is the first data plane
    that has the model, provided that only one environment has it. Raises UsageError, NotFoundError.
    """
    if name is None and plane is None and url is None:
        url = os.environ.get(VARIABLE) or None
    found = proxies(name, plane, url)
    if url is not None:
        return found[0]
    pairs = [(name, each) for each in found for facts in each.models.values() for name in facts.names]
    having = [each for name, each in pairs if name == model]
    if not having:
        do = nearest_of(model, sorted({name for name, _ in pairs}), "models")
        raise NotFoundError(f"no environment has the model {model!r}", do=do)
    if len(environments := dict.fromkeys(each.environment for each in having)) > 1:
        what = f"the model {model} is in {', '.join(environments)}"
        raise UsageError(what, do=f"pass --environment, or set {VARIABLE}")
    return having[0]


ANSWER_SECONDS: Final = 15.0
Key = tuple[str, str]  # server and model


class ModelStatus(VisibleModel):
    """The state of one model. `inputs` and `outputs` are set only for a named model that is in memory."""

    traffic: str  # which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`
    named: tuple[int, ...] = ()  # versions in the definition
    missing: tuple[int, ...] = ()  # those of them that no replica has. Empty for a cold model.
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    max_batch: int | None = None  # rows per request. 0: the model takes no batches.


class AskedPlane(Message):
    """One environment on one data plane, with the error of its proxy, if any."""

    environment: str
    plane: str
    proxy: str
    error: str = ""  # why its state is unknown
    exit_code: int = 0  # of `tidegate`, for this error

    @property
    def at(self) -> str:
        """The environment and the data plane, or the proxy's address if neither is known."""
        return f"{self.environment} on {self.plane}" if self.plane else self.environment or self.proxy


class PlaneOverview(AskedPlane):
    """The models and slices of a data plane."""

    models: tuple[VisibleModel, ...] = ()
    slices: tuple[SliceRoom, ...] = ()


class PlaneStatus(AskedPlane):
    """The models of a data plane, with their traffic, inputs and outputs."""

    caller: str = ""  # the caller's name at the proxy
    models: tuple[ModelStatus, ...] = ()


Found = TypeVar("Found", PlaneOverview, PlaneStatus)
Query = Callable[[KnownProxy, ProxyClient], dict[str, Any]]


def _query_each(
    known: Sequence[KnownProxy], seconds: float, kind: type[Found], model: str | None, query: Query
) -> list[Found]:
    """Query all proxies in parallel. If one fails or times out, its result has the error. `query` returns fields of
    `kind`. If `model` is set, results without that model are left out. Raises NotFoundError if no result is left."""
    if model is not None:
        served_name(model)  # raises UsageError for an invalid name

    def one(proxy: KnownProxy) -> Found:
        about: dict[str, Any] = {"environment": proxy.environment, "plane": proxy.plane, "proxy": proxy.url}
        try:
            with proxy.client(seconds, waits=False) as client:
                about |= query(proxy, client)
        except TidegateError as error:
            about |= {"error": str(error), "exit_code": error.exit_code}
        return kind(**about)

    found = in_parallel(one, known)
    if model is None:
        return found
    if not (having := [each for each in found if each.models or each.error]):
        raise NotFoundError(f"there is no model {model!r}", do="run `tidegate status` to see all that you can access")
    return having


def _whereabouts(client: ProxyClient, model: str | None) -> Whereabouts:
    """Return where models are. Empty if the named model is not there."""
    try:
        return client.whereabouts(model)
    except NotFoundError:
        if model is None:
            raise
        return Whereabouts(environment="", models=())


def overview(
    known: Sequence[KnownProxy], seconds: float = ANSWER_SECONDS, model: str | None = None
) -> list[PlaneOverview]:
    """Return the models and slices of each proxy, or one model, with one request to each. The result of a proxy that
    fails or times out has its error. Raises NotFoundError if no proxy has the model."""

    def query(proxy: KnownProxy, client: ProxyClient) -> dict[str, Any]:
        found = _whereabouts(client, model)
        environment = proxy.environment or found.environment
        return {"environment": environment, "models": found.models, "slices": found.slices}

    return _query_each(known, seconds, PlaneOverview, model, query)


def collect(known: Sequence[KnownProxy], model: str | None = None) -> list[PlaneStatus]:
    """Return the status of each data plane, queried in parallel. If a proxy fails, its result has the error. Raises
    NotFoundError if none of the reachable proxies has the named model."""
    return _query_each(known, ANSWER_SECONDS, PlaneStatus, model, lambda proxy, client: _status(proxy, client, model))


def _status(proxy: KnownProxy, client: ProxyClient, model: str | None) -> dict[str, Any]:
    caller = client.whoami()
    environment = proxy.environment or caller.environment
    found = _whereabouts(client, model).models

    def of(at: VisibleModel) -> ModelStatus:
        return _model(proxy, client, at, is_named=model is not None)

    models = tuple(in_parallel(of, sorted(found, key=lambda each: each.model)))
    return {"environment": environment, "caller": caller.principal, "models": models}


def _model(proxy: KnownProxy, client: ProxyClient, at: VisibleModel, *, is_named: bool) -> ModelStatus:
    """Return the state of a model with its signature. `is_named`: the user named this model."""
    facts, config = proxy.models.get((at.server, at.model)), dict[str, Any]()
    # This request counts as use and would load a model that was evicted meanwhile, so it is sent only if needed.
    if at.state == "resident" and (is_named or (facts is not None and facts.alias is not None)):
        with suppress(TidegateError):
            config = client.config(at.model, server=at.server)
    signature = signature_of(config)
    named = set() if facts is None else {share.version for share in facts.versions}
    there = {version for place in at.places for version in place.versions}
    is_cold = at.loading == "on-demand" and not there  # The next call loads it: until then no version is missing.
    return ModelStatus(
        **dict(at),
        traffic=proxy.traffic(at.server, at.model, config),
        named=tuple(sorted(named)),
        missing=() if is_cold else tuple(sorted(named - there)),
        inputs=tuple(f"{each}{'?' if each.optional else ''}" for each in signature.inputs),
        outputs=tuple(map(str, signature.outputs)),
        max_batch=signature.max_batch if config else None,
    )
