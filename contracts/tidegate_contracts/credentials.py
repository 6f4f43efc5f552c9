"""Patterns of credentials: no object may contain one, and no message shows one."""

import re
from typing import Final

MASK: Final = "•••"
_VALUE = r"(?P<secret>[^\s;,&'\"$<{•][^\s;'\"]*)"
KNOWN: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)")),
    ("an AWS access key", re.compile(r"(?<![A-Z0-9])(AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])")),
    ("a GitHub token", re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})")),
    ("a Google API key", re.compile(r"\bAIza[A-Za-z0-9_-]{35}\b")),
    ("a Slack token", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    ("an NGC key", re.compile(r"\bnvapi-[A-Za-z0-9_-]{40,}")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    (  # A second start ends the first one's run, so no run is read twice.
        "a JSON web token",
        re.compile(r"\beyJ(?:[A-Za-z0-9_]|-(?!eyJ)){8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    ),
    (  # An image's digest is not one.
        "a password in an address",
        re.compile(r"(?<=[A-Za-z0-9+.-])://(?P<secret>[^\s/:@'\"]*:[^\s/@$'\"]{3,})@(?!sha[0-9]+:)"),
    ),
    (
        "an authorization header",
        re.compile(r"\b(?:Basic|Bearer)\s+(?P<secret>(?=[^\s'\"]*[0-9])[A-Za-z0-9+/=_.~-]{16,})"),
    ),
    (
        "an API key",
        re.compile(
            r"(?<![\w.-])sk-(?:(?:proj|ant|svcacct|admin|or)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,}(?![A-Za-z0-9_-]))"
        ),
    ),
    ("a Slack webhook", re.compile(r"\bhooks\.slack\.com/(?P<secret>[a-z]+/[A-Za-z0-9/_-]{8,})")),
    ("a signed address", re.compile(r"(?:[?&;]|u0026)sig=(?P<secret>[A-Za-z0-9%+/=_-]{16,})")),
    (
        "a password in a connection string",
        re.compile(
            r"(?i)(?:\b(?:host|server|port|user(?:name)?|uid|login|dbname|database)=[^\s;=]+[\s;]+"
            r"(?:pass|passwd|password|pwd)(?:\s*=\s*|[ \t]+)"
            rf"|\bmachine\s+\S+\s+login\s+\S+\s+password\s+){_VALUE}"
        ),
    ),
)
"""Patterns of credentials. Previews mask a match, or only its group `secret` if it has one."""
# It also matches a run without a host, without the group. Otherwise each of its parts would read it again.
_USERINFO = re.compile(r"(?<![^\s\"'=$])[^\s/:@'\"=$]+:[^\s/@$'\"]{3,}(?=(@(?!sha[0-9]+:))?)")


def has_userinfo(text: str) -> bool:
    """Return whether a text has `name:password@` without a scheme, as programs accept addresses of web proxies. The
    digest of an image does not count."""
    return any(found[1] for found in _USERINFO.finditer(text))


def masked(text: str) -> str:
    """Return a text with dots in place of each credential, in time linear to its length."""
    for _, pattern in KNOWN:
        text = pattern.sub(_mask, text)
    return _USERINFO.sub(lambda found: MASK if found[1] else found[0], text)


def _mask(found: re.Match[str]) -> str:
    start, end = found.span("secret" if "secret" in found.re.groupindex else 0)
    return found.string[found.start() : start] + MASK + found.string[end : found.end()]
