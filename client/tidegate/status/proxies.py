"""Which proxies are asked: those of an environment, of all environments, or the one that is named."""

import os
from dataclasses import dataclass
from pathlib import Path

from tidegate_contracts.environments import Plane

from ..calling.address import VARIABLE, proxy_url
from ..calling.credentials import Credential, find_credential
from ..calling.proxy import ProxyClient
from ..environments import ENVIRONMENTS, environment, load
from ..errors import NotFoundError, UsageError
from ..names import nearest_of


@dataclass(frozen=True)
class KnownProxy:
    """The inference proxy of an environment on one data plane."""

    environment: str
    """Empty where only the proxy's address is known."""
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None
    """What the definition says of it, where that is known."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that the definition has there; none where only the address is known."""
        return tuple(model.name for model in self.facts.models) if self.facts is not None else ()

    def client(self, seconds: float) -> ProxyClient:
        """Return a client of it, whose calls take so many seconds at most."""
        return ProxyClient(self.url, self.credential, seconds=seconds)


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
    said = file is not None or ENVIRONMENTS in os.environ
    if name is None and plane is None and not said and os.environ.get(VARIABLE):
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
    if name is None and plane is None and url is None and os.environ.get(VARIABLE):
        url = os.environ[VARIABLE]
    found = proxies(name, plane, url, file=file)
    if url is not None:
        return found[0]
    having = [each for each in found if model in each.models]
    if not having:
        names = sorted({name for each in found for name in each.models})
        raise NotFoundError(
            f"no environment that was asked has the model {model!r}", do=nearest_of(model, names, "models")
        )
    environments = list(dict.fromkeys(each.environment for each in having))
    if len(environments) > 1:
        what = f"the model {model} is in {', '.join(environments)}"
        raise UsageError(what, do=f"say which with --environment, or set {VARIABLE}")
    return having[0]
