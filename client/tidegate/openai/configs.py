"""Which versions of a model `tidegate` has brought in: a file beside them, for itself. Engines read nothing of it.

The definition names the versions that engines serve; what is here says which of them came to the end of their way.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from ..errors import UsageError
from ..repository import Published

CONFIG: Final = "tidegate.json"
NOT_READY: Final = ""  # Engines say nothing of the kind.


def published_config(
    entry_config: str,  # noqa: ARG001
    *,
    model: str,
    owner: int,
    served: Collection[int],
    aliases: Mapping[str, int],
) -> str:
    """Return the text of the file."""
    document = {"model": model, "owner": owner, "served": sorted(set(served)), "aliases": dict(aliases)}
    return json.dumps(document, sort_keys=True) + "\n"


def closed_config(config: str) -> str:
    """Return the text with no version."""
    return json.dumps(_read(config) | {"served": [], "aliases": {}}, sort_keys=True) + "\n"


withdrawn_config = closed_config
"""Engines let go of nothing while they run."""


def read_published(text: str) -> Published:
    """Return what the file says; raises UsageError where it cannot be read."""
    document = _read(text)
    return Published(document["owner"], tuple(document["served"]), document["aliases"])


def config_differences(one: str, other: str) -> list[str]:
    """Return what differs, a field a line."""
    before, after = _read(one), _read(other)
    names = sorted(before.keys() | after.keys())
    return [f"{each}: {before.get(each)} → {after.get(each)}" for each in names if before.get(each) != after.get(each)]


def loaded_at_once(_one: str | None, _other: str) -> int:
    """Return 1: an engine has one version, whatever is brought in beside it."""
    return 1


def _read(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
        fits = isinstance(document["owner"], int) and isinstance(document["aliases"], dict)
        served = document["served"]
        fits = fits and isinstance(served, list) and all(isinstance(each, int) for each in served)
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise UsageError(f"{CONFIG} cannot be read", do="find out who changed it; `tidegate verify` shows all of it")
    found: dict[str, Any] = document
    return found
