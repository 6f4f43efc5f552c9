"""`POST /predict`, as the clients of Domino's reference implementation send it.

The envelope names server, model and version; its payload is the body of a v2 inference request, and goes on as it is.
"""

from functools import lru_cache

import msgspec

from ..problems import Kind, Problem
from ..targets import Target, is_name, is_version
from .paths import target


class Envelope(msgspec.Struct):
    """The body of `/predict`. An empty version leaves the choice to the traffic's shares."""

    inference_server_name: str
    model_name: str
    payload: msgspec.Raw
    model_version: str | int | None = None


_decoder = msgspec.json.Decoder(Envelope)


def open_envelope(body: bytes | bytearray | memoryview) -> tuple[Target, memoryview]:
    """Return what is asked, and the body to send on; raises Problem."""
    try:
        envelope = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(Kind.MALFORMED, f"The body of /predict is no envelope: {error}.") from None
    asked = _target(envelope.inference_server_name, envelope.model_name, envelope.model_version)
    return asked, memoryview(envelope.payload)


@lru_cache(maxsize=4096, typed=True)
def _target(server: str, model: str, said: str | int | None) -> Target:
    for name in (server, model):
        if not is_name(name):
            raise Problem(Kind.UNKNOWN, "No server or model can have such a name.")
    version = None if said is None or said == "" else str(said)
    if version is not None and not is_version(version):
        raise Problem(Kind.MALFORMED, "model_version is a number from 1 of at most 16 digits, or left out.")
    return target("infer", server, model, version)
