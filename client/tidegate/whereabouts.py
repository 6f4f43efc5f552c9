"""Where models are, since when, and why not: asked of every proxy, which asks its replicas. Nothing is loaded."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidegate_contracts.whereabouts import Place, SliceRoom, VisibleModel

from .calling.inputs import signature_of
from .calling.proxy import ProxyClient, served_name
from .errors import NotFoundError, TidegateError
from .parallel import in_parallel
from .status import ANSWER_SECONDS, AskedPlane, KnownProxy, ask_each


class FoundModel(VisibleModel):
    """A model on one data plane; what it takes and gives is told of one that is in memory."""

    environment: str
    plane: str
    traffic: str  # what decides which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    max_batch: int | None = None  # rows that a request may have; 0: it takes no batches


class PlaneWhereabouts(AskedPlane):
    """Its models, each asked further."""

    models: tuple[FoundModel, ...] = ()


class PlaneOverview(AskedPlane):
    """Its models and slices, as the proxy tells them, and nothing asked beside."""

    models: tuple[VisibleModel, ...] = ()
    slices: tuple[SliceRoom, ...] = ()


def runbook(model: VisibleModel, place: Place) -> str:
    """Return where it is written what to do about a replica that has a model not in use, or nothing."""
    alert = ""
    if place.state == "unreachable":
        pool = [each.state for each in model.places if each.pool == place.pool]
        alert = "TidegatePoolGone" if {*pool} == {"unreachable"} else "TidegateBreakerOpen"
    elif model.loading == "on-demand":
        alert = {"unseen": "TidegatePolicySilent", "queued": "TidegateCallsBusy"}.get(place.state, "")
    return f"docs/runbooks.md, {alert}" if alert else ""


def overview(proxies: Sequence[KnownProxy], seconds: float) -> list[PlaneOverview]:
    """Return what sits where, of each proxy, with one question to each; one that gives no answer in so many seconds, or
    cannot be asked, says why."""

    def question(proxy: KnownProxy, client: ProxyClient) -> Iterator[dict[str, Any]]:
        found = client.whereabouts()
        environment = proxy.environment or found.environment
        yield {"environment": environment, "models": found.models, "slices": found.slices}

    return ask_each(proxies, seconds, PlaneOverview, question)


def ask(proxies: Sequence[KnownProxy], model: str | None = None) -> list[PlaneWhereabouts]:
    """Return what each proxy says of all models, or of one: of those proxies then that have it, or gave no answer.

    Raises NotFoundError where there are none, and UsageError for no name.
    """
    if model is not None:
        served_name(model)  # once for all of them

    def question(proxy: KnownProxy, client: ProxyClient) -> Iterator[dict[str, Any]]:
        try:
            found = client.whereabouts(model)
        except NotFoundError:
            if model is None:
                raise
            return
        environment = proxy.environment or found.environment
        yield {"environment": environment}
        models = in_parallel(lambda each: _found(client, proxy, environment, each), found.models)
        yield {"models": tuple(models)}

    found = ask_each(proxies, ANSWER_SECONDS, PlaneWhereabouts, question)
    if model is None:
        return found
    if not (having := [each for each in found if each.models or each.error]):
        raise NotFoundError(f"there is no model {model!r}", do="`tidegate models` shows all that you may see")
    return having


def _found(client: ProxyClient, proxy: KnownProxy, environment: str, model: VisibleModel) -> FoundModel:
    config: Mapping[str, Any] = {}
    if model.state == "resident":
        with suppress(TidegateError):
            config = client.config(model.model, server=model.server)
    signature = signature_of(config)
    return FoundModel(
        **dict(model), environment=environment, plane=proxy.plane,
        traffic=proxy.traffic(model.server, model.model, config),
        inputs=tuple(f"{each}{'?' if each.optional else ''}" for each in signature.inputs),
        outputs=tuple(map(str, signature.outputs)), max_batch=signature.max_batch if config else None,
    )  # fmt: skip
