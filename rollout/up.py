"""`up` without a cluster: every stack as YAML."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from stacks.command import CommandError, Outcome, chosen
from stacks.problems import advisory_text, counted, escaped, listed
from stacks.validate import read_definition

from . import output, summary
from .changes.compare import ObjectChange, compare
from .changes.names import under_names_of_now
from .changes.report import left_behind, report, total
from .changes.workloads import mapping
from .changes.workloads import text as text_at
from .guardrails import enforce, findings
from .manifests import documents
from .render import Rendered, render
from .terminal import console, note, progress

MOST_OBJECTS = 12
MOST_FIELDS = 8


def render_all(path: Path, out: Path, only: str | None, outcome: Outcome) -> None:
    """Render a definition's stacks (or one of them) into a folder, and say what came out and what changed."""
    definition = read_definition(path)
    stacks = chosen(definition, only)
    place = output.real(out)
    before = output.read_index(out)  # a folder of somebody else is refused at once
    rendering = [render(stack, definition) for stack in progress(stacks, len(stacks), "stacks rendered")]
    guarded = enforce(findings(rendering, definition))
    if before and only and not output.same_definition(before, definition.file):
        raise CommandError(
            f"{escaped(str(out))} holds a rendering of {escaped(before.definition)}, and one stack of "
            f"{escaped(definition.file)} cannot stand among its stacks.\nRender without --stack, or name another "
            "folder with --out <folder>."
        )
    found = output.look(out, before) if before else None
    if found:
        output.refuse_foreign(out, found)
    there = under_names_of_now(before.stacks, stacks) if before else {}
    kept = {name: files for name, files in there.items() if name != only} if only else {}
    index = output.new_index(definition.file, rendering, kept)
    by_hand = bool(found and [file for file in (*found.edited, *found.missing) if file.split("/")[0] not in kept])
    if index != before or by_hand:
        output.write(place, index, rendering, kept, outcome)
    screen = console()
    screen.print(summary.table(stacks, rendering))
    differing = "" if only else summary.how_they_differ(definition)
    for paragraph in (differing, advisory_text(definition.advisories), guarded):
        if paragraph:
            screen.print(paragraph, soft_wrap=True)
    screen.print(summary.how_to_go_on(definition, stacks, only, out), soft_wrap=True)
    if before is None or found is None:
        files = sum(len(item.files) for item in rendering)
        screen.print(f"{files} files written for {counted([item.stack for item in rendering], 'stack')}.")
        return
    if before.definition != index.definition:
        note(f"{escaped(str(out))} held a rendering of {escaped(before.definition)} before.")
    for touched, what in ((found.edited, "edited"), (found.missing, "removed")):
        for left, how in ((False, "written anew"), (True, "left so")):
            if some := [file for file in touched if (file.split("/")[0] in kept) == left]:
                note(f"{what} by hand since the last run, and {how}: {listed(some, most=5)}.")
    changes = changes_since(under_names_of_now(found.texts, stacks), rendering, () if only else there)
    if text := report(changes, objects=MOST_OBJECTS, fields=MOST_FIELDS):
        screen.print(text, soft_wrap=True)
        screen.print(total(changes))
        contexts = {stack.name: stack.data_plane.context_name for stack in stacks}
        if rest := left_behind(changes, contexts):
            screen.print(rest, soft_wrap=True)
    elif index != before:
        screen.print("No object changed; comments or the names of files did.")
    else:
        screen.print("Nothing changed: the files were put back." if by_hand else "Nothing changed.")


def changes_since(
    texts: Mapping[str, Mapping[str, str]], rendering: Sequence[Rendered], stacks: Sequence[str] | Mapping[str, object]
) -> dict[str, list[ObjectChange]]:
    """Return what changed in each stack since these texts were written; `stacks` were there before, and may be gone."""
    after = {item.stack: item for item in rendering}
    changes = {}
    for name in dict.fromkeys([*after, *stacks]):
        old = texts.get(name, {})
        new = after[name].files if name in after else {}
        differing = {file for file in old.keys() | new.keys() if old.get(file) != new.get(file)}
        objects = after[name].objects if name in after else ()
        wanted = [item for item, file in zip(objects, new, strict=True) if file in differing]
        changes[name] = compare(parsed({file: old[file] for file in old if file in differing}), wanted)
    return changes


def parsed(texts: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the objects in rendered files; files without a readable object are left out."""
    objects = []
    for text in texts.values():
        try:
            (item,) = documents(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        namespace = mapping(item, "metadata").get("namespace", "")
        if text_at(item, "kind") and text_at(item, "metadata", "name") and isinstance(namespace, str):
            objects.append(item)
    return objects
