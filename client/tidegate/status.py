"""What is served where, and why not, as proxies find out from servers. Nothing is loaded."""

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

    environment: str  # empty where only the proxy's address is known
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None  # what the definition says of it, where that is known

    @cached_property
    def models(self) -> "dict[Key, ModelFacts]":
        """What the definition says of its models, by server and name."""
        return {} if self.facts is None else {(each.server, each.name): each for each in self.facts.models}

    def traffic(self, server: str, model: str, config: Mapping[str, Any]) -> str:
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


def proxies(name: str | None = None, plane: str | None = None, url: str | None = None) -> list[KnownProxy]:
    """Return the proxy at `url`; or those of an environment; or, with neither, of every environment that is known.

    Raises UsageError, NotFoundError.
    """
    if url is not None:
        if name is not None or plane is not None:
            raise UsageError("the proxy's address says where: leave the environment and the data plane out")
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
        what = "the environment lives nowhere" if plane is None else f"there is no data plane {plane!r}"
        raise NotFoundError(what, do="" if plane is None else nearest_of(plane, planes, "data planes"))
    return found


def proxy_of(model: str, name: str | None = None, plane: str | None = None, url: str | None = None) -> KnownProxy:
    """Return the one proxy at which a model is called.

    Without a word of where, it is the one that DOMINO_INFERENCE_PROXY names, as of a model endpoint; else the first
    data plane of the environment that has the model, if no other environment has it too. Raises UsageError,
    NotFoundError.
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
        raise NotFoundError(f"no environment that was asked has the model {model!r}", do=do)
    if len(environments := dict.fromkeys(each.environment for each in having)) > 1:
        what = f"the model {model} is in {', '.join(environments)}"
        raise UsageError(what, do=f"say which with --environment, or set {VARIABLE}")
    return having[0]


ANSWER_SECONDS: Final = 15.0
Key = tuple[str, str]  # server and model


class ModelStatus(VisibleModel):
    """One model as its proxy tells it; what it takes and gives stands of one that you name, and that is in memory."""

    traffic: str  # what decides which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`
    named: tuple[int, ...] = ()  # versions that the definition names
    missing: tuple[int, ...] = ()  # those of them that no replica has; none of one that is cold
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    max_batch: int | None = None  # rows that a request may have; 0: it takes no batches


class AskedPlane(Message):
    """One environment on one data plane, as its proxy was asked about it."""

    environment: str
    plane: str
    proxy: str
    error: str = ""  # why nothing could be learned
    exit_code: int = 0  # with which `tidegate` ends for that

    @property
    def at(self) -> str:
        """The environment and the data plane in words; the proxy's address where neither is known."""
        return f"{self.environment} on {self.plane}" if self.plane else self.environment or self.proxy


class PlaneOverview(AskedPlane):
    """Its models and slices, as the proxy tells them, and nothing asked beside."""

    models: tuple[VisibleModel, ...] = ()
    slices: tuple[SliceRoom, ...] = ()


class PlaneStatus(AskedPlane):
    """Its models, with what decides which version answers, and what they take."""

    caller: str = ""  # the name by which the proxy knows the caller
    models: tuple[ModelStatus, ...] = ()


Found = TypeVar("Found", PlaneOverview, PlaneStatus)
Question = Callable[[KnownProxy, ProxyClient], dict[str, Any]]


def _ask_each(
    asked: Sequence[KnownProxy], seconds: float, kind: type[Found], model: str | None, question: Question
) -> list[Found]:
    """Ask all proxies at the same time; one that gives no answer in so many seconds says why, and hides no other.

    `question` returns fields of `kind`. Where a model is named, those that do not have it are left out; raises
    NotFoundError where there are no others.
    """
    if model is not None:
        served_name(model)  # Refuses what is no name, once for all of them.

    def one(proxy: KnownProxy) -> Found:
        about: dict[str, Any] = {"environment": proxy.environment, "plane": proxy.plane, "proxy": proxy.url}
        try:
            with proxy.client(seconds, waits=False) as client:
                about |= question(proxy, client)
        except TidegateError as error:
            about |= {"error": str(error), "exit_code": error.exit_code}
        return kind(**about)

    found = in_parallel(one, asked)
    if model is None:
        return found
    if not (having := [each for each in found if each.models or each.error]):
        raise NotFoundError(f"there is no model {model!r}", do="`tidegate status` shows all that you may see")
    return having


def _whereabouts(client: ProxyClient, model: str | None) -> Whereabouts:
    """Ask where models are; where the one that is named is not there, there are none."""
    try:
        return client.whereabouts(model)
    except NotFoundError:
        if model is None:
            raise
        return Whereabouts(environment="", models=())


def overview(
    asked: Sequence[KnownProxy], seconds: float = ANSWER_SECONDS, model: str | None = None
) -> list[PlaneOverview]:
    """Return what sits where, or where one model is, with one question to each proxy; one that gives no answer in so
    many seconds, or cannot be asked, says why. Raises NotFoundError where no proxy has the model."""

    def question(proxy: KnownProxy, client: ProxyClient) -> dict[str, Any]:
        found = _whereabouts(client, model)
        environment = proxy.environment or found.environment
        return {"environment": environment, "models": found.models, "slices": found.slices}

    return _ask_each(asked, seconds, PlaneOverview, model, question)


def collect(asked: Sequence[KnownProxy], model: str | None = None) -> list[PlaneStatus]:
    """Return the status of each, asked at the same time; one that cannot be asked says why and hides no other.

    Raises NotFoundError where a model is named that none of those that answered has.
    """
    return _ask_each(asked, ANSWER_SECONDS, PlaneStatus, model, lambda proxy, client: _status(proxy, client, model))


def _status(proxy: KnownProxy, client: ProxyClient, model: str | None) -> dict[str, Any]:
    caller = client.whoami()
    environment = proxy.environment or caller.environment
    found = _whereabouts(client, model).models

    def of(at: VisibleModel) -> ModelStatus:
        return _model(proxy, client, at, is_named=model is not None)

    models = tuple(in_parallel(of, sorted(found, key=lambda each: each.model)))
    return {"environment": environment, "caller": caller.principal, "models": models}


def _model(proxy: KnownProxy, client: ProxyClient, at: VisibleModel, *, is_named: bool) -> ModelStatus:
    """Return the state of a model as the proxy gives it, and what it takes; `is_named`: the caller named this one."""
    facts, config = proxy.models.get((at.server, at.model)), dict[str, Any]()
    # The question counts as use, and loads a model that went meanwhile: it is put where its answer is shown.
    if at.state == "resident" and (is_named or (facts is not None and facts.alias is not None)):
        with suppress(TidegateError):
            config = client.config(at.model, server=at.server)
    signature = signature_of(config)
    named = set() if facts is None else {share.version for share in facts.versions}
    there = {version for place in at.places for version in place.versions}
    is_cold = at.loading == "on-demand" and not there  # It is loaded when it is called: until then nothing is missing.
    return ModelStatus(
        **dict(at),
        traffic=proxy.traffic(at.server, at.model, config),
        named=tuple(sorted(named)),
        missing=() if is_cold else tuple(sorted(named - there)),
        inputs=tuple(f"{each}{'?' if each.optional else ''}" for each in signature.inputs),
        outputs=tuple(map(str, signature.outputs)),
        max_batch=signature.max_batch if config else None,
    )
