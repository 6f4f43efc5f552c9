"""Where the inference proxy is (`DOMINO_INFERENCE_PROXY`), and addresses below it, which no name can climb out of."""

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from ..errors import UsageError
from ..names import RULE, is_name

VARIABLE: Final = "DOMINO_INFERENCE_PROXY"
_HTTP_SERVICE_PORT: Final = 80
"""Where the proxy's Service speaks plain HTTP; tidegate_contracts.proxy_process has it, which would bring pydantic."""
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_.~%-]+)*/*")

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,15}")
_WORD: Final = re.compile(r"[0-9A-Za-z._-]{1,128}")
Version = int | str | None
"""The number of a version; None leaves it to the environment: its shares, its alias, or the newest."""


def proxy_url(said: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the proxy's address as `scheme://host[:port][/path]`, without a slash at its end.

    Without a scheme it is HTTPS, unless the port is 80, at which the proxy's Service speaks plain HTTP: a credential is
    never sent in clear text for want of a word. Raises UsageError, which holds nothing of a password in the address.
    """
    where = "the proxy's address" if said is not None else VARIABLE
    text = (environ.get(VARIABLE, "") if said is None else said).strip()
    if not text:
        raise UsageError(
            "it is not said where the inference proxy is",
            where=where,
            do=f"set {VARIABLE} to its host, host:port or URL, such as https://inference.example.com",
        )

    def wrong(why: str) -> UsageError:
        do = "write host, host:port or URL, such as https://inference.example.com"
        return UsageError("this is no address of an inference proxy", where=where, why=why, do=do)

    has_scheme = "://" in text
    try:
        parts = urlsplit(text if has_scheme else f"//{text}")
        port = parts.port
    except ValueError:
        raise wrong("its port or its brackets are wrong") from None
    if "@" in parts.netloc:
        raise wrong("it has a user or a password, which do not belong into an address")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise wrong("it has a query or a fragment")
    if has_scheme and parts.scheme not in ("http", "https"):
        raise wrong(f"its scheme is {parts.scheme!r}, and http and https are known")
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc.removesuffix(":")
    if not _HOST.fullmatch(host):
        raise wrong("it has no host, or one that is none")
    if not _PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        raise wrong("its path is none")
    scheme = parts.scheme if has_scheme else "http" if port == _HTTP_SERVICE_PORT else "https"
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{host.lower()}{'' if port in (None, default) else f':{port}'}{parts.path.rstrip('/')}"


def of_server(server: str | None) -> str:
    """Return where the addresses of a server begin; raises UsageError."""
    return "" if server is None else f"/servers/{_name(server, 'server')}"


def model_path(server: str | None, model: str, version: Version, tail: str = "") -> str:
    """Return the address of what is asked of a model; raises UsageError for what is no name or no version."""
    which = "" if version is None else f"/versions/{_number(version)}"
    return f"{of_server(server)}/v2/models/{_name(model, 'model')}{which}{tail}"


def sticky_header(word: str | None) -> dict[str, str]:
    """Return the header that keeps calls with one word at one version; raises UsageError."""
    if word is None:
        return {}
    if not _WORD.fullmatch(word):
        raise UsageError(f"{word!r} is no sticky word", why="1 to 128 letters, digits, dots, dashes, underscores are")
    return {"tidegate-sticky": word}


def _name(text: str, what: str) -> str:
    if not is_name(text):
        raise UsageError(f"{text!r} is no name of a {what}", do=RULE)
    return text


def _number(version: int | str) -> str:
    text = str(version)
    if isinstance(version, bool) or not _NUMBER.fullmatch(text):
        raise UsageError(f"{text!r} is no version", why="a version is a number from 1, without leading zeros")
    return text
