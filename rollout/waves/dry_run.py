"""What a rollout would change, plane by plane, as the API server of each works it out. Nothing is changed."""

from collections.abc import Mapping

from rich.text import Text

from stacks.command import CommandError
from stacks.stack import Stack

from ..changes.compare import compare
from ..changes.report import report
from ..contexts import context_of
from ..engines import Engine
from ..live import KEPT, live_objects
from ..render import Rendered

_MOST_OBJECTS = 12
_MOST_FIELDS = 8


def what_would_change(
    stacks: Mapping[str, Stack], rendering: Mapping[str, Rendered], engine: Engine
) -> tuple[Text, list[str]]:
    """Return what would change in each plane, and in lines why which planes would not come up."""
    changes = {}
    notes: list[str] = []
    refused: list[str] = []
    for plane, rendered in rendering.items():
        stack, name = stacks[plane], rendered.stack
        try:
            live = live_objects(context_of(stack.data_plane), [rendered])[name]
            engine.check(stack, rendered)
        except CommandError as error:
            refused.append(f"{plane}: {error}")
            continue
        changes[name] = compare(live.before, live.after)
        refused += [f"{plane}: {words}" for words in live.refused]
        # Pulumi makes such objects anew, but for datasets, which it protects; the API server refuses Helm all of them.
        refused += [
            f"{plane}: {change.kind} {change.name} cannot be changed in place ({', '.join(change.reasons)})"
            for change in changes[name]
            if change.verb == "replaced" and (engine.name != "pulumi" or change.kind in KEPT)
        ]
        if not changes[name]:
            notes.append(f"{plane}: nothing would change.")
    out = report(changes, objects=_MOST_OBJECTS, fields=_MOST_FIELDS)
    for line in notes:
        out.append(f"\n{line}" if out else line)
    return out, refused
