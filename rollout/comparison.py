"""What a preview compares: the last rendering, a git revision or a cluster with what is declared now."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.command import CommandError, chosen
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack

from . import output
from .changes.compare import ObjectChange, compare
from .changes.revision import NothingToCompare, rendering_of
from .contexts import context_of, on_cluster
from .render import Rendered, render
from .terminal import make, note, progress
from .up import changes_since, parsed

Texts = Mapping[str, Mapping[str, str]]
Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    definition: Path
    out: Path
    only: str | None = None
    base: str | None = None
    cluster: str | None = None
    summary: Path = Path("build/preview.md")

    @property
    def is_local(self) -> bool:
        """Whether it is about the local cluster."""
        return self.cluster == "local"


@dataclass(frozen=True)
class Comparison:
    """What is compared with what: for each stack its objects before and after, None where there is no such stack."""

    against: str
    changes: Mapping[str, Sequence[ObjectChange]]
    before: Mapping[str, Objects | None]
    """Of stacks that nobody asked for too, where they are known: rules compare them with the others."""
    after: Mapping[str, Objects | None]
    notes: tuple[str, ...] = ()
    """What people must know to read it right."""
    commit: str = ""
    refused: int = 0
    """How many objects the cluster would not take."""


def compared(wanted: Wanted, definition: Definition) -> tuple[list[Rendered], Comparison]:
    """Return what is declared, rendered, and how it compares with what is asked for."""
    if wanted.cluster is not None:
        if wanted.is_local:
            stacks, context = _local_stacks(definition, wanted.only), wanted.cluster
        else:
            stacks = on_cluster(definition, wanted.cluster, wanted.only)
            context = context_of(stacks[0].data_plane)
        rendering = _rendered(definition, stacks)
        return rendering, _with_cluster(context, rendering)
    stacks = chosen(definition, wanted.only)
    if wanted.base is None:
        texts, against = _last_rendering(definition, wanted.out), f"the rendering in {escaped(str(wanted.out))}"
        rendering = _rendered(definition, stacks)
        return rendering, _with_texts(texts, against, rendering, wanted.only)
    notes: tuple[str, ...] = ()
    commit = ""
    texts = {}
    try:
        with rendering_of(wanted.base, wanted.definition) as revision:
            texts, commit = _texts(revision.folder), revision.commit
    except NothingToCompare as error:
        notes = (f"Everything counts as new: {error}",)
        note(notes[0])
    rendering = _rendered(definition, stacks)
    return rendering, _with_texts(texts, escaped(wanted.base), rendering, wanted.only, notes, commit)


def _rendered(definition: Definition, stacks: Sequence[Stack]) -> list[Rendered]:
    return [
        render(stack, definition.lock, definition.file) for stack in progress(stacks, len(stacks), "stacks evaluated")
    ]


def _with_texts(
    texts: Texts,
    against: str,
    rendering: Sequence[Rendered],
    only: str | None,
    notes: tuple[str, ...] = (),
    commit: str = "",
) -> Comparison:
    changes = changes_since(texts, rendering, () if only else texts)
    before = {name: parsed(texts[name]) if name in texts else None for name in {**changes, **texts}}
    after = {item.stack: item.objects for item in rendering}
    return Comparison(against, changes, before, {name: after.get(name) for name in changes}, notes, commit)


def _local_stacks(definition: Definition, only: str | None) -> tuple[Stack, ...]:
    """Return the stacks of the local cluster, and let kubectl find it."""
    from .local import incomplete, local_stacks, running_local

    stacks = local_stacks(definition, only)
    cluster = running_local()
    if cluster is None:
        how = make("up", CLUSTER="local", DEFINITION=definition.file)
        if what := incomplete():
            raise CommandError(f"{what}. Start it anew, empty:\n  {how}")
        raise CommandError(f"there is no local cluster to compare with. Start one:\n  {how}")
    os.environ.update(cluster.environment())
    return stacks


def _with_cluster(context: str, rendering: Sequence[Rendered]) -> Comparison:
    from .live import live_objects

    found = live_objects(context, rendering)
    notes = []
    for name, live in found.items():
        notes += [f"{name}: the cluster would refuse this: {sentence}" for sentence in live.refused]
        notes += [f"{name}: {kept} is no longer described, and stays for the data in it" for kept in live.kept]
    for said in notes:
        note(said)
    return Comparison(
        f"the cluster {escaped(context)}",
        {name: compare(live.before, live.after) for name, live in found.items()},
        {name: live.before or None for name, live in found.items()},
        {name: live.after for name, live in found.items()},
        tuple(notes),
        refused=sum(len(live.refused) for live in found.values()),
    )


def _last_rendering(definition: Definition, out: Path) -> Texts:
    place = output.real(out)
    nothing = CommandError(
        f"There is no rendering in {escaped(str(out))} yet. Make one, or compare with a git revision:\n"
        f"  {make('up', DEFINITION=definition.file, OUT=out)}\n"
        f"  {make('preview', BASE='main', DEFINITION=definition.file)}"
    )
    if output.read_index(out) is None and not output.beside(place, "old").exists():
        raise nothing
    with output.locked(place, "waiting: another run is writing there …"):
        index = output.read_index(out)
        if index is None:
            raise nothing
        found = output.look(out, index)
    if not output.same_definition(index, definition.file):
        note(f"{escaped(str(out))} holds a rendering of another definition, {escaped(index.definition)}.")
    if found.edited or found.missing:
        by_hand = listed((*found.edited, *found.missing), most=5)
        note(f"edited or removed by hand since the last run: {by_hand}. `make up` writes them anew.")
    return found.texts


def _texts(folder: Path) -> Texts:
    """Read a rendering that another version of this code wrote: only folders of YAML files are relied on."""
    return {
        stack.name: {file.name: file.read_text("utf-8") for file in sorted(stack.glob("*.yaml")) if file.is_file()}
        for stack in sorted(folder.iterdir())
        if stack.is_dir()
    }
