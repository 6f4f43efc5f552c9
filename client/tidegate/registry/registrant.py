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
    """Return the caller's name, and why it may be another's: nothing where a proxy says it, which asked for a proof.

    The proxy is that of DOMINO_INFERENCE_PROXY, else any of those in `environments.json`. Without one that answers it
    is Domino's word for who started the run, else the login name.
    """
    from ..calling.proxy import ProxyClient

    proxy = "no proxy was asked that could prove it"
    for url in _proxies(environ):
        try:
            with ProxyClient(url, seconds=SECONDS) as asked:
                return asked.whoami().principal, ""
        except TidegateError as error:
            proxy = f"the proxy at {url} does not prove it: {error.what}"
    if name := environ.get(DOMINO_USER, "").strip():
        return name, f"{DOMINO_USER} says so, and {proxy}"
    with suppress(KeyError, OSError):
        return getpass.getuser(), f"it is the login name, and {proxy}"
    return f"uid-{os.getuid()}", f"it is the user's number on this machine, which has no name for it, and {proxy}"


def _proxies(environ: Mapping[str, str]) -> Iterator[str]:
    from ..environments import ENVIRONMENTS, load

    if said := environ.get(PROXY, "").strip():
        yield said
    elif environ.get(ENVIRONMENTS, "").strip():
        known = load().environments
        yield from (plane.proxy_url for environment in known for plane in environment.planes)
