"""A file next to the versions that lists those which `tidegate` has deployed. Engines do not read it.

The definition names the versions that engines serve. This file has those whose deployment was completed.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from ..errors import UsageError
from ..repository import Published

CONFIG: Final = "tidegate.json"
NOT_READY: Final = ""  # engines have no such error


def published_config(_: str, *, model: str, owner: int, served: Collection[int], aliases: Mapping[str, int]) -> str:
    """Return the text of the file."""
    document = {"model": model, "owner": owner, "served": sorted(set(served)), "aliases": dict(aliases)}
    return json.dumps(document, sort_keys=True) + "\n"


def closed_config(config: str) -> str:
    """Return the text without versions."""
    return json.dumps(_read(config) | {"served": [], "aliases": {}}, sort_keys=True) + "\n"


withdrawn_config = closed_config
"""Running engines unload nothing."""


def read_published(text: str) -> Published:
    """Parse the file. Raises UsageError if it cannot be read."""
    document = _read(text)
    return Published(document["owner"], tuple(document["served"]), document["aliases"])


def config_differences(one: str, other: str) -> list[str]:
    """Return the differences, one field per line."""
    before, after = _read(one), _read(other)
    names = sorted(before.keys() | after.keys())
    return [f"{each}: {before.get(each)} → {after.get(each)}" for each in names if before.get(each) != after.get(each)]


def loaded_at_once(_one: str | None, _other: str) -> int:
    """Return 1: each engine has one version."""
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
        raise UsageError(f"{CONFIG} cannot be read", do="find out who changed it (`tidegate verify`)")
    found: dict[str, Any] = document
    return found
