"""The paths of the KServe v2 protocol (open inference protocol), with Triton's for generate, statistics, configuration.

Only these spellings exist; the path that goes to Triton is written anew from what was understood, so that no spelling
of a caller's ever reaches it. Model control, shared memory, trace and log settings have no spelling at all.
"""

import re

from ..targets import NAME_PATTERN, VERSION_PATTERN, Target

NAME = "triton"
_PATH = re.compile(
    rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v2/models/(?P<model>{NAME_PATTERN})(?:/versions/(?P<version>{VERSION_PATTERN}))?"
    r"(?:/(?P<verb>infer|generate|generate_stream|ready|config|stats))?"
)
_POSTED = frozenset({"infer", "generate", "generate_stream"})
_LOOKS = frozenset({"ready", "stats"})
PREDICT = Target(NAME, "infer", b"POST", "infer", "predict", in_body=True)
"""What `/predict` asks for before its body is known."""


def understand(path: str) -> Target | None:
    """Return what a path asks of a model, or None when it asks none."""
    if path == "/predict":
        return PREDICT
    match = _PATH.fullmatch(path)
    if match is None or (match["model"] == "stats" and not match["verb"] and not match["version"]):
        return None  # `/v2/models/stats` is the statistics of all models
    return target(match["verb"] or "metadata", match["server"], match["model"], match["version"])


def target(verb: str, server: str | None, model: str, version: str | None) -> Target:
    """Return what a verb of the protocol asks of a model."""
    posted = verb in _POSTED
    return Target(
        kind=NAME,
        verb=verb,
        method=b"POST" if posted else b"GET",
        action="infer" if posted else "inspect",
        model=model,
        server=server,
        version=version,
        looks_only=verb in _LOOKS,
        may_be_of_sequence=verb == "infer",
        streams=verb == "generate_stream",
    )


def path(target: Target, version: str | None) -> bytes:
    """Return Triton's path for what is asked, with the version that was chosen."""
    which = f"/versions/{version}" if version else ""
    tail = "" if target.verb == "metadata" else f"/{target.verb}"
    return f"/v2/models/{target.model}{which}{tail}".encode()
