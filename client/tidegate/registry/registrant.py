"""Who registers: the name by which inference proxies know the caller, for it is compared with theirs later."""

import getpass
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ..errors import TidegateError

PROXY = "DOMINO_INFERENCE_PROXY"
DOMINO_USER = "DOMINO_STARTING_USERNAME"
SECONDS = 10.0


def registrant(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the caller's name, and who says so; the latter is nothing where a proxy does, which has asked for a proof.

    The proxy is that of DOMINO_INFERENCE_PROXY, else any of those in `environments.json`. Without one that answers it
    is Domino's word for who started the run, else the login name.
    """
    from ..calling.proxy import ProxyClient

    for url in _proxies(environ):
        with suppress(TidegateError), ProxyClient(url, seconds=SECONDS) as proxy:
            return proxy.whoami().principal, ""
    if name := environ.get(DOMINO_USER, "").strip():
        return name, f"{DOMINO_USER} says so, and no proxy was asked that could prove it"
    with suppress(KeyError, OSError):
        return getpass.getuser(), "it is the login name, and no proxy was asked that could prove it"
    return f"uid-{os.getuid()}", "it is the user's number on this machine, which has no name for it"


def _proxies(environ: Mapping[str, str]) -> Iterator[str]:
    from ..environments import load
    from ..settings import ENVIRONMENTS

    if said := environ.get(PROXY, "").strip():
        yield said
    elif environ.get(ENVIRONMENTS, "").strip():
        known = load().environments
        yield from (plane.proxy_url for environment in known for plane in environment.planes)
