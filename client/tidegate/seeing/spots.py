"""Which proxies are asked: those of an environment, of all environments, or the one that is named."""

import os
from dataclasses import dataclass

from tidegate_contracts.environments import Plane

from ..calling.address import VARIABLE, proxy_url
from ..calling.credentials import Credential, find_credential
from ..calling.proxy import ProxyClient
from ..environments import environment, load, nearest
from ..errors import NotFoundError, UsageError
from ..settings import ENVIRONMENTS


@dataclass(frozen=True)
class Spot:
    """One proxy."""

    environment: str
    """Empty where only the proxy's address is known."""
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None
    """What the definition says of it, where that is known."""

    def client(self, seconds: float) -> ProxyClient:
        """Return a client; every call takes so long at most."""
        return ProxyClient(self.url, self.credential, seconds=seconds)


def every(name: str | None = None, plane: str | None = None, url: str | None = None) -> list[Spot]:
    """Return the proxy at `url`; or those of an environment; or, with neither, of every environment that is known.

    Raises UsageError, NotFoundError.
    """
    if url is not None:
        if name is not None or plane is not None:
            raise UsageError("the proxy's address says where: leave the environment and the data plane out")
        return [Spot("", "", proxy_url(url), find_credential())]
    if name is None and plane is None and ENVIRONMENTS not in os.environ and os.environ.get(VARIABLE):
        return every(url=os.environ[VARIABLE])
    known = load()
    credential = find_credential()
    wanted = known.environments if name is None else (environment(name, known),)
    found = [
        Spot(each.name, at.name, proxy_url(at.proxy_url), credential, at)
        for each in wanted
        for at in sorted(each.planes, key=lambda at: at.wave)
        if plane is None or at.name == plane
    ]
    if not found:
        planes = sorted({at.name for each in wanted for at in each.planes})
        what = "the environment lives nowhere" if plane is None else f"there is no data plane {plane!r}"
        raise NotFoundError(what, do="" if plane is None else nearest(plane, planes, "data planes"))
    return found


def one(model: str, name: str | None = None, plane: str | None = None, url: str | None = None) -> Spot:
    """Return the one proxy at which a model is called.

    Without a word of where, it is the one that DOMINO_INFERENCE_PROXY names, as of a model endpoint; else the first
    data plane of the environment that has the model, if no other environment has it too. Raises UsageError,
    NotFoundError.
    """
    if name is None and plane is None and url is None and os.environ.get(VARIABLE):
        url = os.environ[VARIABLE]
    found = every(name, plane, url)
    if url is not None:
        return found[0]
    having = [
        spot for spot in found if spot.facts is not None and any(each.name == model for each in spot.facts.models)
    ]
    if not having:
        names = sorted({each.name for spot in found if spot.facts is not None for each in spot.facts.models})
        raise NotFoundError(
            f"no environment that was asked has the model {model!r}", do=nearest(model, names, "models")
        )
    environments = list(dict.fromkeys(spot.environment for spot in having))
    if len(environments) > 1:
        raise UsageError(
            f"the model {model} is in {', '.join(environments)}",
            do=f"say which with --environment, or set {VARIABLE}",
        )
    return having[0]
