"""`preview`: what would change, against a git revision or a cluster. No cluster is touched.

What is said goes to a page of Markdown too, for the reviewers of the change.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.text import Text

from policies.guardrails import Finding, check
from policies.guardrails.objects import mapping
from policies.guardrails.objects import text as text_at
from stacks.command import WRONG_INPUT, CommandError, chosen_stacks
from stacks.devices import inventory
from stacks.problems import DefinitionError, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .changes.compare import KubernetesObject, ObjectChange, compare
from .changes.names import by_their_home, hints, home_of, renamings, under_names_of_now
from .changes.page import code, failed_page, page
from .changes.report import report
from .changes.revision import NothingToCompare, rendering_of
from .changes.sections import sections
from .changes.stack_change import StackChange, stack_change, verdict
from .contexts import context_in, on_cluster
from .files import write_atomically
from .guardrails import enforce, findings, today
from .manifests import documents
from .orphans import Orphan, orphans_in
from .render import Rendered, render
from .seen import CommandReport
from .terminal import console, note, progress

Texts = Mapping[str, Mapping[str, str]]
Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PreviewRequest:
    """What the command line asks for."""

    definition: Path
    only: str | None
    base: str | None
    cluster: str | None
    summary: Path


@dataclass(frozen=True)
class Comparison:
    """What is compared with what: for each stack its objects before and after, None where there is no such stack."""

    against: str
    changes: Mapping[str, Sequence[ObjectChange]]
    before: Mapping[str, Objects | None]
    after: Mapping[str, Objects | None]
    notes: tuple[str, ...] = ()  # What people must know to read it right.
    commit: str = ""
    refused: int = 0  # How many objects the cluster would not take.
    orphans: Sequence[Orphan] = ()


def preview_changes(wanted: PreviewRequest, seen: CommandReport) -> None:
    """Say what would change in every stack, or in one of them; raise CommandError where a mandatory rule is broken."""
    if (wanted.base is None) == (wanted.cluster is None):
        raise CommandError(
            "Compare with a git revision (--base main) or with a cluster (--cluster <context>).", WRONG_INPUT
        )
    # Nobody shall take an old page for this one, nor miss that this one did not come to its end.
    _write(wanted.summary, failed_page(code(str(wanted.definition)), "The preview was begun, and did not end."))
    try:
        definition = seen.definition = read_definition(wanted.definition)
        rendering, comparison = compared(wanted, definition)
    except (DefinitionError, CommandError) as error:
        what = "is wrong" if isinstance(error, DefinitionError) else "could not be compared"
        _write(wanted.summary, failed_page(f"{code(str(wanted.definition))} {what}", str(error)))
        raise
    found = seen.guardrails = findings(rendering)
    changes = seen.changes = _stack_changes(wanted, definition, found, comparison)
    seen.against, seen.verdict = comparison.against, verdict(changes, comparison.refused)
    moves = [
        f"{name}: {line}"
        for name in comparison.changes
        for line in renamings(comparison.before[name] or (), comparison.after[name] or ())
    ]
    moves += dict.fromkeys(hints(comparison.before, comparison.after))
    for line in moves:
        note(line)
    seen.notes = (*comparison.notes, *moves)
    against = code(wanted.base) if wanted.base is not None else f"the cluster {code(wanted.cluster or '')}"
    commit = f" ({code(comparison.commit[:10])})" if comparison.commit else ""
    how = ", without any cluster" if wanted.base is not None else ""
    subject = f"Tidegate's preview of {code(str(wanted.definition))} against {against}{commit}{how}"
    _write(wanted.summary, page(changes, subject, (*comparison.notes, *moves), refused=comparison.refused))
    screen = console()
    screen.print(f"Against {comparison.against}:", soft_wrap=True)
    for text in (report(comparison.changes), terminal_sections(changes)):
        if text:
            screen.print(text, soft_wrap=True)
    screen.print(seen.verdict, soft_wrap=True)
    note(f"written for reviewers: {escaped(str(wanted.summary))}")
    enforce(found, "nothing was changed")


def _stack_changes(
    wanted: PreviewRequest, definition: Definition, found: Mapping[str, Sequence[Finding]], comparison: Comparison
) -> list[StackChange]:
    known = found
    if wanted.cluster is None:  # rules judge what is declared: in live objects stand defaults too
        known = {name: check(objects or (), today()) for name, objects in comparison.before.items()}
    there: dict[str, Counter[str]] = defaultdict(Counter)
    for stack in definition.stacks:
        for (device, _), count in inventory(stack.data_plane.gpus).items():
            there[stack.name][str(device)] += count
    return [
        stack_change(
            name,
            changes,
            comparison.before[name],
            comparison.after[name],
            there=there.get(name),
            findings=found.get(name, ()),
            known=known.get(name, ()),
            definition=definition.file,
        )
        for name, changes in comparison.changes.items()
    ] + [_orphan_change(each, definition) for each in comparison.orphans]


def _orphan_change(orphan: Orphan, definition: Definition) -> StackChange:
    """Return what there is to say of an orphan: no `up` changes it, and it goes on taking its devices."""
    as_it_is = stack_change(orphan.home.name, (), orphan.objects, orphan.objects)
    return replace(as_it_is, state="orphaned", stays=orphan.words, down=orphan.command(definition.file))


def terminal_sections(changes: Sequence[StackChange]) -> Text:
    """Return what the change means; the worst stands last, next to the prompt."""
    out = Text()
    for title, lines in reversed(sections(changes).items()):
        out.append(f"{title}:\n", "bold")
        for line in lines:
            words = " ".join(filter(None, (", ".join(line.stacks), line.label, line.subject)))
            out.append(f"  {escaped(': '.join(filter(None, (words, line.text))))}\n", "bold red" if line.grave else "")
    out.rstrip()
    return out


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


# ---- what is compared with what ----


def compared(wanted: PreviewRequest, definition: Definition) -> tuple[list[Rendered], Comparison]:
    """Return what is declared, rendered, and how it compares with what is asked for."""
    if wanted.cluster is not None:
        stacks: Sequence[Stack] = ()
        wrong: CommandError | None = None
        try:
            stacks = on_cluster(definition, wanted.cluster, wanted.only)
        except CommandError as error:
            wrong = error
        orphans = orphans_in(definition, wanted.cluster, wanted.only, wrong)
        rendering = _rendered(definition, stacks)
        return rendering, replace(_with_cluster(context_in(definition, wanted.cluster), rendering), orphans=orphans)
    stacks = chosen_stacks(definition, wanted.only)
    notes: list[str] = []
    texts: Texts = {}
    commit = ""
    base = wanted.base or ""
    try:
        with rendering_of(base, wanted.definition) as (commit, folder):
            # Another version of this code wrote it: only folders of YAML files are relied on.
            texts = {
                stack.name: {file.name: file.read_text("utf-8", "replace") for file in sorted(stack.glob("*.yaml"))}
                for stack in sorted(folder.iterdir())
                if stack.is_dir()
            }
    except NothingToCompare as error:
        notes.append(f"Everything counts as new: {error}")
    found = {name: {file: _object_in(text) for file, text in files.items()} for name, files in texts.items()}
    if lost := [f"{name}/{file}" for name, files in found.items() for file, item in files.items() if item is None]:
        notes.append(f"Not compared, because nothing can be read in them: {escaped(listed(lost, most=5))}")
    for line in notes:
        note(line)
    rendering = _rendered(definition, stacks)
    there = {name: [item for item in files.values() if item is not None] for name, files in found.items()}
    there = by_their_home(under_names_of_now(there, definition.stacks), home_of, definition.stacks)
    after = {item.stack: item.objects for item in rendering}
    names = dict.fromkeys([*after, *(() if wanted.only else there)])
    # What is no longer described stays in its cluster, so none of its objects changes.
    changes = {name: compare(there.get(name, ()), after[name]) if name in after else () for name in names}
    before = {name: there.get(name) for name in changes}
    return rendering, Comparison(
        escaped(base), changes, before, {name: after.get(name) for name in changes}, tuple(notes), commit
    )


def _object_in(text: str) -> KubernetesObject | None:
    """Return the object in a rendered file; None if there is none that can be read."""
    try:
        (item,) = documents(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    namespace = mapping(item, "metadata").get("namespace", "")
    named = text_at(item, "kind") and text_at(item, "metadata", "name") and isinstance(namespace, str)
    return item if named else None


def _rendered(definition: Definition, stacks: Sequence[Stack]) -> list[Rendered]:
    return [render(stack, definition) for stack in progress(stacks, len(stacks), "stacks evaluated")]


def _with_cluster(context: str, rendering: Sequence[Rendered]) -> Comparison:
    from .live import live_objects

    found = live_objects(context, rendering)
    changes = {name: compare(live.before, live.after) for name, live in found.items()}
    notes = []
    for name, live in found.items():
        if absent := [f"{each.kind} {each.name}" for each in changes[name] if live.before and each.verb == "created"]:
            missing = f"not in the cluster: {listed(absent, most=5)}"
            notes.append(f"{name}: {missing}. What is not new in the definition, was deleted by hand")
        notes += [f"{name}: the cluster would refuse this: {sentence}" for sentence in live.refused]
        notes += [f"{name}: {kept} is no longer described, and stays for the data in it" for kept in live.kept]
    for said in notes:
        note(said)
    return Comparison(
        f"the cluster {escaped(context)}",
        changes,
        {name: live.before or None for name, live in found.items()},
        {name: live.after for name, live in found.items()},
        tuple(notes),
        refused=sum(len(live.refused) for live in found.values()),
    )
