"""The preview as a page of Markdown, for a comment on a pull request or a job's summary.

The worst comes first, and details come last. A page that is too long for a comment is cut at its end.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from policies.guardrails import Finding
from policies.guardrails.checking import counted
from stacks.problems import escaped

from ..room import difference
from . import restarts
from .compare import DATASETS, WORDS, ObjectChange, tally
from .report import meaning, values
from .restarts import Notice
from .secrets import hidden_text
from .stack_change import StackChange, alike, broken, findings_of, notices_of, verdict

LIMIT = 65_536  # Longest comment that GitHub takes; GitLab takes more.

# Punctuation that means nothing inside a line to any Markdown, nor to what the platforms make of texts afterwards.
_HARMLESS = frozenset(" ,.-/=()?;+")
_WEB = re.compile(r"(?i)\bwww\.")
_NO_WIDTH = "&#8203;"
_CALLS = frozenset("@#!~%$&")
"""Signs that make a mention or a reference of the word after them, even where they are written as entities."""
_BLANKS = re.compile(r"\n{3,}")
_RESERVE = 2_048  # Of a comment's length, for the end of the page and what its poster may want to put around it.
_MOST_STACKS = 6  # Names of stacks that a line has.
_DATASET_REPLACED = "- **DATASET REPLACED**"
_FAILED = "**⛔ This preview failed"


def page(changes: Sequence[StackChange], subject: str, notes: Sequence[str] = (), refused: int = 0) -> str:
    """Return the page.

    `subject` says in Markdown what was compared, `notes` are foreign texts about it; `refused` counts the objects that
    the cluster would not take.
    """
    lines = [f"**{_sign(changes, refused)} {verdict(changes, refused)}**", "", f"{subject}."]
    if notes:
        lines += ["", message("\n".join(notes))]
    sections: dict[str, Callable[[Sequence[StackChange]], list[str]]] = {
        "Weaker than before": partial(_permissions, "weaker"),
        "Who may newly call": _grants,
        "What callers and teams lose": partial(_permissions, "lost"),
        "Deleted, replaced, no longer served": _dangerous,
        "Guardrails": _findings,
        "What restarts": _restarts,
        "Other effects": _notices,
        "Stricter, or newly offered": partial(_permissions, "stricter"),
        "GPU devices": _devices,
        "GPUs a month, and room": _money,
        "Changes": _stacks,
    }
    for title, section in sections.items():
        if body := section(changes):
            lines += ["", f"#### {title}", "", *body]
    mandatory = broken(changes)
    return _BLANKS.sub("\n\n", _fitting(lines, f"{_FAILED}: {mandatory}.**" if mandatory else ""))


def failed_page(subject: str, why: str) -> str:
    """Return the page of a preview that could not be made; `why` is a foreign text, and stands there in full."""
    lines = ["**⛔ There is no preview**", "", f"{subject}:", "", message(why)]
    return _fitting(lines, f"{_FAILED}: nothing was compared.**")


def message(text: str) -> str:
    """Return the lines of a foreign text as they are; never a secret."""
    return "\n".join(["<pre>", *map(_entities, hidden_text(text)[:LIMIT].splitlines()), "</pre>"])


def _fitting(lines: Sequence[str], end: str) -> str:
    """Return the text of a page with its last line; one that is too long is cut, and says where all of it is."""
    text = "\n".join(lines)
    if size(text) > LIMIT - _RESERVE:
        cut = text.encode("utf-8", "replace")[: LIMIT - _RESERVE].decode("utf-8", "ignore")
        text = cut[: cut.rfind("\n")] if "\n" in cut[LIMIT // 2 :] else cut[: cut.rfind("&")]
        for tag in ("code", "pre", "details"):
            text += f"\n</{tag}>" * (text.count(f"<{tag}>") - text.count(f"</{tag}>"))
        text += f"\n\n*Cut: GitHub takes {LIMIT:,} characters. The output of `tidegate preview` has all of it.*"
    return "\n".join([text, "", *([end, ""] if end else [])])


def _sign(changes: Sequence[StackChange], refused: int) -> str:
    if broken(changes):
        return "⛔"
    if refused or any(
        change.dangerous or change.grave or change.is_weaker or change.permissions.lost or change.stays
        for change in changes
    ):
        return "⚠️"
    return "✏️" if any(change.objects for change in changes) else "✅"


def _places(stacks: Sequence[str]) -> str:
    more = f" and {len(stacks) - _MOST_STACKS} more" if len(stacks) > _MOST_STACKS else ""
    return ", ".join(map(code, stacks[:_MOST_STACKS])) + more


def _permissions(about: str, changes: Sequence[StackChange]) -> list[str]:
    ways = alike((change.name, way) for change in changes for way in getattr(change.permissions, about))
    mark = "" if about == "stricter" else "**"
    return [f"- {_places(stacks)} {mark}{prose(way)}{mark}" for way, stacks in ways.items()]


def _grants(changes: Sequence[StackChange]) -> list[str]:
    found = alike((change.name, grant) for change in changes for grant in change.permissions.grants)
    if not found:
        return []
    rows = [
        (_places(stacks), code(each.who), code(each.action), code(each.models))
        for each, stacks in sorted(found.items(), key=lambda item: not item[0].wider)
    ]
    return table(("Stack", "Who", "May newly", "Models"), rows)


def _dangerous(changes: Sequence[StackChange]) -> list[str]:
    """Return what is worst first: stacks that are not described, then datasets, models, and all other objects."""
    removed = [
        f"- **{change.state.upper()}** {code(change.name)} {prose(change.stays)}"
        + (f". To take it down: {code(change.down)}" if change.down else "")
        for change in changes
        if change.stays
    ]
    staying = [change for change in changes if change.state != "removed"]
    objects = alike((change.name, _dangerous_object(item)) for change in staying for item in change.dangerous)
    lines = [f"{verb} {_places(stacks)} {rest}" for (verb, rest), stacks in objects.items()]
    datasets = [line for line in lines if line.startswith(_DATASET_REPLACED)]
    others = [line for line in lines if not line.startswith(_DATASET_REPLACED)]
    notices = [_notice(notice, stacks, "**") for notice, stacks in notices_of(changes, grave=True).items()]
    return [*removed, *datasets, *notices, *others]


def _dangerous_object(item: ObjectChange) -> tuple[str, str]:
    """Return what happens to an object, and which it is; of a dataset also where it leads to, before and after."""
    why = f": {prose(what)}" if (what := meaning(item)) else ""
    if item.verb != "replaced" or item.kind not in DATASETS:
        return f"- **{item.verb.upper()}**", _named(item) + why
    return _DATASET_REPLACED, "\n".join([_named(item) + why, *_fields(item)])


def _findings(changes: Sequence[StackChange]) -> list[str]:
    """Return what is new, then what else stops the change; all that stood there before is a count to open."""
    found = findings_of(changes)
    loud = [
        f"- {'**new** ' if new else ''}{_finding(each, stacks)}"
        + (f" {prose(more)}" if (more := each.waiver or each.do) else "")
        for each, new, stacks in found
        if new or each.severity == "mandatory"
    ]
    quiet = {each: stacks for each, new, stacks in found if not new and each.severity != "mandatory"}
    mended = alike((change.name, each) for change in changes for each in change.fixed)
    lines = [f"- gone: {_finding(each, stacks)}" for each, stacks in mended.items()]
    lines += [f"- {_finding(each, stacks)}" for each, stacks in quiet.items()]
    if not lines:
        return loud
    counts = [f"as before: {counted(quiet)}" if quiet else "", f"{len(mended)} gone" if mended else ""]
    return [*loud, "", *folded(", ".join(filter(None, counts)), lines)]


def _finding(each: Finding, stacks: Sequence[str]) -> str:
    return f"**{each.severity}** {_places(stacks)} {code(each.object)}: {prose(each.what)} {code(each.rule)}"


def _restarts(changes: Sequence[StackChange]) -> list[str]:
    everything = [(change.name, restart) for change in changes for restart in change.restarts]
    if not everything:
        return ["Nothing: no pod template changes."] if any(change.state == "changed" for change in changes) else []
    rows = alike((stack, _cells(restart)) for stack, restart in everything)
    return table(
        ("Stack", "Workload", "Pods", "Models", "Because of"), [(_places(stacks), *row) for row, stacks in rows.items()]
    )


def _cells(restart: restarts.Restart) -> tuple[str, ...]:
    workload = code(f"{restart.workload.kind} {restart.workload.name}")
    return (
        f"**REPLACED** {workload}" if restart.replaced else workload,
        restarts.how(restart),
        code(restarts.models(restart)),
        code(restarts.because(restart)),
    )


def _notices(changes: Sequence[StackChange]) -> list[str]:
    return [_notice(notice, stacks) for notice, stacks in notices_of(changes, grave=False).items()]


def _notice(notice: Notice, stacks: Sequence[str], mark: str = "") -> str:
    return f"- {_places(stacks)} {code(f'{notice.kind} {notice.name}')}: {mark}{prose(notice.what)}{mark}"


def _devices(changes: Sequence[StackChange]) -> list[str]:
    """Return a table of the devices that change, and one to open of those that do not."""
    devices = alike((change.name, one) for change in changes for one in change.devices)
    rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for one, stacks in devices.items():
        changed = one.before != one.after
        after = f"**{one.after}**" if changed else str(one.after)
        there = "" if one.there is None else str(one.there)
        rows[changed].append((_places(stacks), code(one.kind), str(one.before), after, there))
    out: list[str] = []
    for changed, of_these in rows.items():
        if of_these:
            lines = table(("Stack", "Device", "Before", "After", "On its data plane"), of_these)
            taken = sum(one.after * len(stacks) for one, stacks in devices.items() if one.before == one.after)
            out += lines if changed else ["", *folded(f"unchanged: {taken}", lines)]
    return [*out, "\n<sub>Autoscalers count with their most replicas.</sub>"] if devices else []


def _money(changes: Sequence[StackChange]) -> list[str]:
    """Return a table of what stacks cost that change, and the room of their pools to open."""
    costing = [change for change in changes if change.state != "unchanged" and any(one.devices for one in change.costs)]
    rows = []
    for change in costing:
        before, after = (prose(str(cost)) for cost in change.costs)
        more = prose(difference(*change.costs))
        rows.append((code(change.name), before, f"**{after}**" if before != after else after, more))
    if not rows:
        return []
    pools = [f"- {code(change.name)} {prose(str(each))}" for change in costing for each in change.room]
    out = table(("Stack", "Before", "After", "Difference"), rows)
    return [*out, *(["", *folded("room in pools", pools)] if pools else [])]


def _stacks(changes: Sequence[StackChange]) -> list[str]:
    """Return the objects of each stack."""
    seen: dict[tuple[str, ...], str] = {}
    out = []
    for change in (change for change in changes if change.objects):
        what = f"<b>{code(change.name)}</b>: {tally(change.objects)}"
        lines = tuple(_objects(change))
        if lines in seen:
            out.append(f"- {what} – the same as {code(seen[lines])}")
        else:
            seen[lines] = change.name
            out += ["", *folded(what, lines), ""]
    return out


def _objects(change: StackChange) -> Iterator[str]:
    harmless = [item for item in change.objects if item.verb not in ("deleted", "replaced")]
    for item in (*change.dangerous, *harmless):
        yield f"- **{WORDS[item.verb]}** {_named(item)}"
        yield from _fields(item)


def _named(item: ObjectChange) -> str:
    return code(f"{item.kind} {item.name}")


def _fields(item: ObjectChange) -> Iterator[str]:
    yield from (f"  - {code(field.place)} {code(values(field))}" for field in item.fields)


# ---- Markdown that GitHub and GitLab read alike, in which no foreign text can be anything but text ----
#
# What comes from a definition stands between `<code>` tags with its punctuation as entities: so it is no table's edge,
# no HTML, no link, no mention and no command to the platform, whatever is in it, and no fence has to be counted.


def code(text: str) -> str:
    """Return a foreign text as code."""
    return f"<code>{_entities(text)}</code>" if text else ""


def prose(text: str) -> str:
    """Return a text with foreign words in it as running text."""
    return _entities(text, _NO_WIDTH)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def folded(summary: str, lines: Iterable[str]) -> list[str]:
    """Return lines that show when somebody opens them; the summary is Markdown already, of one line."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def size(text: str) -> int:
    """Return what a text counts: its bytes, which are never fewer than its characters."""
    return len(text.encode("utf-8", "replace"))


def _entities(text: str, after_calls: str = "") -> str:
    """Return one line with its punctuation as entities."""
    out = "".join(_entity(sign) + (after_calls if sign in _CALLS else "") for sign in escaped(text))
    out = out.replace("&#58; ", ": ")  # begins neither an address nor a smiley
    return _WEB.sub(lambda found: f"{found[0][:-1]}&#46;", out)  # else it would be a link


def _entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in _HARMLESS or ord(sign) > 0x7F else f"&#{ord(sign)};"
