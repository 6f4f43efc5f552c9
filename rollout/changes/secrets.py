"""Hides possible secrets before anything about an object is printed: Secrets, and secrets in the wrong places.

Secrets belong in a Secret that Tidegate only refers to. But if someone wrote one elsewhere (an address with a password,
an environment variable, an argument), a report must not spread it. Hides every value whose name or format suggests a
secret: rather too many than too few.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tidegate_contracts.credentials import MASK, masked

# A name of environment variables, arguments, headers and files: `API_KEY`, `--db-password`, `X-Auth-Token`, `apiKey`.
_SECRET_NAME = re.compile(
    r"(?i:pass(?:word|wd|phrase)|secret|token(?!i[sz])|credential)"
    r"|(?:^|[-_.]|(?<=[a-z])(?=[A-Z]))(?i:(?:[a-z]+[-_.]?)?keys?|pwd|authorization|cookies?)"
    r"(?:$|[-_.]|(?<=[a-z])(?=[A-Z]))"
    r"|(?:^|[-_.]|(?<=[a-z])(?=[A-Z]))(?i:pass)$"
)
# Fields of Kubernetes and of Tidegate's files have such names without a secret (`key: app`, `secretName`), so only
# unambiguous names count for them.
_PLAIN_FIELD = re.compile(
    r"(?i:password|passwd|passphrase|(?:access|secret|private|account|api|bearer|auth)[-_]?(?:key|token)"
    r"|client[-_]?secret|access[-_]?token)$"
)
_USERINFO = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#]+(?=@)")
_SCHEME = re.compile(r"(?i)\b(?P<scheme>bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}")
_ASSIGNED = re.compile(
    r"(?P<name>(?<![\w.-])-{0,2}[A-Za-z][\w.-]*?)(?P<between>\s*=\s*|:\s*(?!//))"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s;,&\"']+)"
)
_OPTION = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
# References, not secrets: of the shell, of Kubernetes, and files by their paths.
_REFERENCE = re.compile(r"[\"']?\$|/(?:etc|run|var|opt|tmp|mnt|home|usr|srv|secrets|dev)/|(?i:true|false)?$")


class Hidden(str):
    """A text that shows only its harmless part. Two are equal if the whole texts are."""

    whole: Any  # The value itself, which must never be shown.

    def __new__(cls, shown: str, whole: Any) -> "Hidden":
        """Keep the whole value for comparisons only."""
        made = super().__new__(cls, shown)
        made.whole = whole
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and bool(self.whole == other.whole)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def hidden(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an object in which secrets are `Hidden`."""
    if item.get("kind") == "Secret":
        payload = ("data", "stringData")
        return {key: _all(value) if key in payload else hidden_tree(value) for key, value in item.items()}
    tree: dict[str, Any] = hidden_tree(item)
    if item.get("kind") == "ConfigMap" and isinstance(tree.get("data"), dict):
        tree["data"] = {key: _named(str(key), value) for key, value in tree["data"].items()}
    return tree


def hidden_text(text: str) -> str:
    """Return a text without secrets that have a known format. Some span lines."""
    text = _USERINFO.sub(lambda found: found["scheme"] + MASK, text)
    text = _SCHEME.sub(lambda found: f"{found['scheme']} {MASK}", text)
    return _ASSIGNED.sub(_assigned, masked(text))


def _assigned(found: re.Match[str]) -> str:
    if not is_secret_name(found["name"]) or _REFERENCE.match(found["value"]) or MASK in found["value"]:
        return found[0]
    if found["value"].lower() in ("bearer", "basic"):
        return found[0]  # the text after it is hidden already
    return found["name"] + found["between"] + MASK


def is_secret_name(name: str) -> bool:
    """Whether a name of a variable, an argument or a header suggests that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def hidden_tree(value: Any) -> Any:
    """Return a copy of a tree in which secrets are `Hidden`."""
    if isinstance(value, Mapping):
        return {key: _field(value, key) for key in value}
    if isinstance(value, (list, tuple)):
        return _list(value)
    return _text(value) if isinstance(value, str) else value


def _field(tree: Mapping[Any, Any], key: Any) -> Any:
    name, value = tree.get("name"), tree[key]
    if key == "value" and isinstance(name, str):
        return _named(name, value)
    is_plain = isinstance(key, str) and _PLAIN_FIELD.search(key) is not None
    return _named("password", value) if is_plain else hidden_tree(value)


def _list(values: list[Any] | tuple[Any, ...]) -> list[Any]:
    out = []
    before: Any = None
    for value in values:
        option = isinstance(before, str) and _OPTION.fullmatch(before) is not None and is_secret_name(before)
        is_value = option and isinstance(value, str) and not value.startswith("-")
        out.append(_named("password", value) if is_value else hidden_tree(value))
        before = value
    return out


def _named(name: str, value: Any) -> Any:
    """Return a named value, completely hidden if the name suggests a secret."""
    if isinstance(value, str) and is_secret_name(name) and "\n" not in value and not _REFERENCE.match(value):
        return Hidden(MASK, value)
    return hidden_tree(value)


def _text(text: str) -> str:
    shown = hidden_text(text)
    if text[:1] in ("{", "["):
        try:
            tree = json.loads(text)
            harmless = json.dumps(hidden_tree(tree), ensure_ascii=False)
            shown = text if harmless == json.dumps(tree, ensure_ascii=False) else harmless
        except (ValueError, RecursionError):
            pass  # not JSON, or not reasonable JSON
    return text if shown == text else Hidden(shown, text)


def _all(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _all(inner) for key, inner in value.items()}
    return Hidden(MASK, value)
