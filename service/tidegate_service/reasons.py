"""Shortens error texts of inference servers for logs and lists of models: one line, no paths, no tracebacks."""

import re
from typing import Final

MOST: Final = 300  # Characters of the longest result.
_SCANNED = 8  # So many times as many are scanned, half of them at the end, where tracebacks have their reason.
_TRACEBACK = "Traceback (most recent call last)"
_PATH = re.compile(
    r"""(?<=['"])(?:[a-z0-9+]{1,16}://|/)[^'"]+(?=['"])|[a-z0-9+]{1,16}://[^\s'"]+|(?<![\w./])/[^\s'":;,()]+"""
)


def plain(text: str) -> str:
    """Return an error's text in one line of at most `MOST` characters, with only the last name of each path."""
    if len(text) > _SCANNED * MOST:
        half = _SCANNED * MOST // 2
        text = f"{text[:half]}\n {text[-half:]}"
    lines, in_traceback = list[str](), False
    for number, line in enumerate(text.splitlines()):
        if number and line.strip() == "At:":  # how Triton's Python backend begins a traceback, with which it ends
            break
        if in_traceback and (line[:1].isspace() or not line):
            continue
        kept, found, _ = line.partition(_TRACEBACK)
        in_traceback = bool(found)
        lines.append(kept)
    kept_text = " ".join(lines)
    if not kept_text.strip():
        kept_text = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    line = " ".join(_PATH.sub(_last_name, kept_text).split())
    return line if len(line) <= MOST else f"{line[: MOST - 2]} …"


def _last_name(path: re.Match[str]) -> str:
    found = path[0]
    kept = found.rstrip("/,;:.()")
    name = kept.partition("?")[0].rstrip("/").rpartition("/")[2]
    return name.rpartition("@")[2] + found[len(kept) :].lstrip("/")
