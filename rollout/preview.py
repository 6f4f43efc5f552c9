"""`preview`: the differences from a git revision or a cluster, which it never changes. Writes a Markdown page, too."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from rich.text import Text

from policies.guardrails import check
from policies.guardrails.objects import mapping
from policies.guardrails.objects import text as text_at
from stacks.command import WRONG_INPUT, CommandError, chosen_stacks
from stacks.devices import inventory
from stacks.problems import DefinitionError, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from .changes.compare import KubernetesObject, identity
from .changes.names import by_home, hints, home_of, renamings, under_names_of_now
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

Objects = Sequence[KubernetesObject]


@dataclass(frozen=True)
class Comparison:
    """The objects of each stack before and after, None if there is no such stack."""

    against: str
    before: Mapping[str, Objects | None]
    after: Mapping[str, Objects | None]
    notes: tuple[str, ...] = ()  # Remarks for readers.
    commit: str = ""
    refused: int = 0  # Number of objects that the cluster would refuse.
    orphans: Sequence[Orphan] = ()


def preview_changes(
    path: Path, only: str | None, base: str | None, cluster: str | None, summary: Path, seen: CommandReport
) -> None:
    """Print what would change in every stack, or in one. Raise CommandError if a mandatory rule is broken."""
    if (base is None) == (cluster is None):
        raise CommandError(
            "Add a git revision (--base main) or a cluster (--cluster <context>) to compare with.", WRONG_INPUT
        )
    # If this run is killed, the page must not show an earlier preview.
    _write(summary, failed_page(code(str(path)), "The preview started, but did not finish."))
    try:
        definition = seen.definition = read_definition(path)
        if base is not None:
            rendering, comparison = with_revision(base, definition, path, only)
        else:
            rendering, comparison = with_cluster(cluster or "", definition, only)
    except (DefinitionError, CommandError) as error:
        what = "is wrong" if isinstance(error, DefinitionError) else "could not be compared"
        _write(summary, failed_page(f"{code(str(path))} {what}", str(error)))
        raise
    found = known = seen.guardrails = findings(rendering)
    if base is not None:  # rules judge declarations, but live objects also have defaults
        known = {name: check(objects or (), today()) for name, objects in comparison.before.items()}
    changes = [
        stack_change(
            name,
            comparison.before[name],
            after,
            there=_inventory(definition, name),
            findings=found.get(name, ()),
            known=known.get(name, ()),
            definition=definition.file,
        )
        for name, after in comparison.after.items()
    ]
    seen.changes = [*changes, *map(_orphan_change, comparison.orphans)]
    seen.against, seen.verdict = comparison.against, verdict(seen.changes, comparison.refused)
    moves = [
        f"{name}: {line}"
        for name, after in comparison.after.items()
        for line in renamings(comparison.before[name] or (), after or ())
    ]
    moves += dict.fromkeys(hints(comparison.before, comparison.after))
    for line in moves:
        note(line)
    seen.notes = (*comparison.notes, *moves)
    against = code(base) if base is not None else f"the cluster {code(cluster or '')}"
    commit = f" ({code(comparison.commit[:10])})" if comparison.commit else ""
    how = ", without any cluster" if base is not None else ""
    subject = f"Tidegate's preview of {code(str(path))} against {against}{commit}{how}"
    _write(summary, page(seen.changes, subject, seen.notes, refused=comparison.refused))
    screen = console()
    screen.print(f"Against {comparison.against}:", soft_wrap=True)
    for text in (report({one.name: one.objects for one in changes}), terminal_sections(seen.changes)):
        if text:
            screen.print(text, soft_wrap=True)
    screen.print(seen.verdict, soft_wrap=True)
    note(f"page for reviewers: {escaped(str(summary))}")
    enforce(found, "nothing was changed")


def _inventory(definition: Definition, name: str) -> Counter[str] | None:
    """Return the number of devices of each kind in a stack's data plane. None if the definition lists none."""
    there = Counter[str]()
    for stack in (each for each in definition.stacks if each.name == name):
        for (device, _), count in inventory(stack.data_plane.gpus).items():
            there[str(device)] += count
    return there or None


def _orphan_change(orphan: Orphan) -> StackChange:
    """Return an orphan as a change. No `up` changes it, and it keeps its devices."""
    as_it_is = stack_change(orphan.home.name, orphan.objects, orphan.objects)
    return replace(as_it_is, state="orphaned", stays=orphan.words, down=orphan.command)


def terminal_sections(changes: Sequence[StackChange]) -> Text:
    """Return the consequences of the change. The worst is last, next to the prompt."""
    out = Text()
    for title, lines in reversed(sections(changes).items()):
        out.append(f"{title}:\n", "bold")
        for line, stacks in lines.items():
            words = " ".join(filter(None, (", ".join(stacks), line.label, line.subject)))
            out.append(f"  {escaped(': '.join(filter(None, (words, line.text))))}\n", "bold red" if line.grave else "")
    out.rstrip()
    return out


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def with_revision(base: str, definition: Definition, path: Path, only: str | None) -> tuple[list[Rendered], Comparison]:
    """Return the rendered definition, and its comparison with the rendering of a git revision."""
    stacks = chosen_stacks(definition, only)
    notes: list[str] = []
    texts: Mapping[str, Mapping[str, str]] = {}
    commit = ""
    try:
        with rendering_of(base, path) as (commit, folder):
            # Another version wrote it, so rely only on directories of YAML files.
            texts = {
                stack.name: {file.name: file.read_text("utf-8", "replace") for file in sorted(stack.glob("*.yaml"))}
                for stack in sorted(folder.iterdir())
                if stack.is_dir()
            }
    except NothingToCompare as error:
        notes.append(f"Everything counts as new: {error}")
    found = {name: {file: _object_in(text) for file, text in files.items()} for name, files in texts.items()}
    if lost := [f"{name}/{file}" for name, files in found.items() for file, item in files.items() if item is None]:
        notes.append(f"Not compared, because they contain no readable object: {escaped(listed(lost, most=5))}")
    for line in notes:
        note(line)
    rendering = _rendered(definition, stacks)
    before = {name: [item for item in files.values() if item is not None] for name, files in found.items()}
    before = by_home(under_names_of_now(before, definition.stacks), home_of, definition.stacks)
    after = {item.stack: item.objects for item in rendering}
    names = dict.fromkeys([*after, *(() if only else before)])
    there: dict[str, Objects | None] = {name: before.get(name) for name in names}
    return rendering, Comparison(escaped(base), there, {name: after.get(name) for name in names}, tuple(notes), commit)


def _object_in(text: str) -> KubernetesObject | None:
    """Return the object in a rendered file. None if there is none or it is unreadable."""
    try:
        (item,) = documents(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    namespace = mapping(item, "metadata").get("namespace", "")
    named = text_at(item, "kind") and text_at(item, "metadata", "name") and isinstance(namespace, str)
    return item if named else None


def _rendered(definition: Definition, stacks: Sequence[Stack]) -> list[Rendered]:
    return [render(stack, definition) for stack in progress(stacks, len(stacks), "stacks rendered")]


def with_cluster(cluster: str, definition: Definition, only: str | None) -> tuple[list[Rendered], Comparison]:
    """Return the rendered definition, and its comparison with the live objects of a cluster."""
    from .live import live_objects

    stacks: Sequence[Stack] = ()
    wrong: CommandError | None = None
    try:
        stacks = on_cluster(definition, cluster, only)
    except CommandError as error:
        wrong = error
    orphans = orphans_in(definition, cluster, only, wrong)
    rendering, context = _rendered(definition, stacks), context_in(definition, cluster)
    found = live_objects(context, rendering)
    notes = []
    for name, live in found.items():
        there = {identity(item) for item in live.before}
        absent = [f"{item['kind']} {item['metadata']['name']}" for item in live.after if identity(item) not in there]
        if absent and there:
            missing = f"not in the cluster: {listed(absent, most=5)}"
            notes.append(f"{name}: {missing}. If the definition had them before, someone deleted them by hand")
        notes += [f"{name}: the cluster would refuse this: {sentence}" for sentence in live.refused]
        notes += [f"{name}: {kept} is no longer described, but stays because it holds data" for kept in live.kept]
    for line in notes:
        note(line)
    return rendering, Comparison(
        f"the cluster {escaped(context)}",
        {name: live.before or None for name, live in found.items()},
        {name: live.after for name, live in found.items()},
        tuple(notes),
        refused=sum(len(live.refused) for live in found.values()),
        orphans=orphans,
    )
