"""Addresses below the proxy's, of names that are names: nothing that is handed over can climb out of them."""

import re
from typing import Final

from ..errors import UsageError
from ..names import RULE, is_name

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,15}")
_WORD: Final = re.compile(r"[0-9A-Za-z._-]{1,128}")
Version = int | str | None
"""The number of a version; None leaves it to the environment: its shares, its alias, or the newest."""


def of_server(server: str | None) -> str:
    """Return where the addresses of a server begin; raises UsageError."""
    if server is None:
        return ""
    return f"/servers/{_name(server, 'server')}"


def model_path(server: str | None, model: str, version: Version, tail: str = "") -> str:
    """Return the address of what is asked of a model; raises UsageError for what is no name or no version."""
    which = "" if version is None else f"/versions/{_number(version)}"
    return f"{of_server(server)}/v2/models/{_name(model, 'model')}{which}{tail}"


def _name(text: str, what: str) -> str:
    if not is_name(text):
        raise UsageError(f"{text!r} is no name of a {what}", do=RULE)
    return text


def _number(version: int | str) -> str:
    text = str(version)
    if isinstance(version, bool) or not _NUMBER.fullmatch(text):
        raise UsageError(f"{text!r} is no version", why="a version is a number from 1, without leading zeros")
    return text


def sticky_header(word: str | None) -> dict[str, str]:
    """Return the header that keeps calls with one word at one version; raises UsageError."""
    if word is None:
        return {}
    if not _WORD.fullmatch(word):
        raise UsageError(f"{word!r} is no sticky word", why="1 to 128 letters, digits, dots, dashes, underscores are")
    return {"tidegate-sticky": word}
