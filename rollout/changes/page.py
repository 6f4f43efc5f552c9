"""The preview as a Markdown page, for a comment on a pull request or the summary of a job.

The worst comes first, and details come last. A page that is too long for a comment is cut at its end.
"""

import re
from collections.abc import Sequence

from stacks.problems import escaped

from .report import report
from .secrets import hidden_text
from .sections import Line, sections
from .stack_change import StackChange, failure_summary, verdict

LIMIT = 65_536  # Bytes of the longest comment that GitHub takes. GitLab takes more.

# Punctuation without a meaning in a line of any Markdown, and in later processing by the platforms.
_HARMLESS = frozenset(" ,.-/=()?;+")
_WEB = re.compile(r"(?i)\bwww\.")
_NO_WIDTH = "&#8203;"
_CALLS = frozenset("@#!~%$&")
"""Signs that make a mention or a reference of the next word, even if they are written as entities."""
_BLANKS = re.compile(r"\n{3,}")
_RESERVE = 2_048  # Bytes for the end of the page and for text that CI adds around it.
_MOST_STACKS = 6  # Names of stacks in a line.
_FAILED = "**⛔ This preview failed"


def page(changes: Sequence[StackChange], subject: str, notes: Sequence[str] = (), refused: int = 0) -> str:
    """Return the page. `subject` states in Markdown what was compared. `notes` are foreign texts about it. `refused`
    counts the objects that the cluster would refuse."""
    lines = [f"**{_sign(changes, refused)} {verdict(changes, refused)}**", "", f"{subject}."]
    if notes:
        lines += ["", message("\n".join(notes))]
    for title, found in sections(changes).items():
        lines += ["", f"#### {title}", "", *(_line(line, stacks) for line, stacks in found.items())]
    if body := report({one.name: one.objects for one in changes}, None).plain:
        lines += [
            "",
            "#### Changes",
            "",
            "<details>\n<summary>Every field</summary>\n",
            _as_it_is(body),
            "\n</details>",
        ]
    mandatory = failure_summary(changes)
    return _BLANKS.sub("\n\n", _fitting(lines, f"{_FAILED}: {mandatory}.**" if mandatory else ""))


def _line(line: Line, stacks: Sequence[str]) -> str:
    mark = "**" if line.grave else ""
    label = f"**{line.label}**" if line.label else ""
    text = f"{mark}{prose(line.text)}{mark}" if line.text else ""
    what = f"{code(line.subject)}{': ' if text else ''}" if line.subject else ""
    return " ".join(filter(None, ("-", label, _places(stacks), f"{what}{text}")))


def failed_page(subject: str, why: str) -> str:
    """Return the page of a preview that failed. `why` is a foreign text, which the page shows in full."""
    lines = ["**⛔ There is no preview**", "", f"{subject}:", "", message(why)]
    return _fitting(lines, f"{_FAILED}: nothing was compared.**")


def message(text: str) -> str:
    """Return the lines of a foreign text unchanged, but without secrets."""
    return _as_it_is(hidden_text(text))


def _as_it_is(text: str) -> str:
    return "\n".join(["<pre>", *map(_entities, text[:LIMIT].splitlines()), "</pre>"])


def _fitting(lines: Sequence[str], end: str) -> str:
    """Return the text of a page with its last line. If it is too long, cut it, and add where the rest is."""
    text = "\n".join(lines)
    if size(text) > LIMIT - _RESERVE:
        cut = text.encode("utf-8", "replace")[: LIMIT - _RESERVE].decode("utf-8", "ignore")
        text = cut[: cut.rfind("\n")] if "\n" in cut[LIMIT // 2 :] else cut[: cut.rfind("&")]
        for tag in ("code", "pre", "details"):
            text += f"\n</{tag}>" * (text.count(f"<{tag}>") - text.count(f"</{tag}>"))
        text += f"\n\n*Cut: GitHub takes {LIMIT:,} characters. The output of `tidegate preview` has all of it.*"
    return "\n".join([text, "", *([end, ""] if end else [])])


def _sign(changes: Sequence[StackChange], refused: int) -> str:
    if failure_summary(changes):
        return "⛔"
    if refused or any(
        change.dangerous or change.grave or change.weaker or change.permissions.lost or change.stays
        for change in changes
    ):
        return "⚠️"
    return "✏️" if any(change.objects for change in changes) else "✅"


def _places(stacks: Sequence[str]) -> str:
    more = f" and {len(stacks) - _MOST_STACKS} more" if len(stacks) > _MOST_STACKS else ""
    return ", ".join(map(code, stacks[:_MOST_STACKS])) + more


#
# Texts from a definition are between `<code>` tags, with their punctuation as entities. So they cannot be a table's
# edge, HTML, a link, a mention or a command to the platform, and no fence has to be counted.


def code(text: str) -> str:
    """Return a foreign text as code."""
    return f"<code>{_entities(text)}</code>" if text else ""


def prose(text: str) -> str:
    """Return a text that contains foreign words as running text."""
    return _entities(text, _NO_WIDTH)


def size(text: str) -> int:
    """Return the bytes of a text, which are never fewer than its characters."""
    return len(text.encode("utf-8", "replace"))


def _entities(text: str, after_calls: str = "") -> str:
    out = "".join(_entity(sign) + (after_calls if sign in _CALLS else "") for sign in escaped(text))
    out = out.replace("&#58; ", ": ")  # starts neither an address nor an emoji
    return _WEB.sub(lambda found: f"{found[0][:-1]}&#46;", out)  # otherwise it would be a link


def _entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in _HARMLESS or ord(sign) > 0x7F else f"&#{ord(sign)};"
