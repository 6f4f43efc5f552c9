"""What a rollout would change, plane by plane, as the API server of each works it out. Nothing is changed."""

from collections.abc import Mapping

from rich.text import Text

from stacks.stack import Stack

from ..changes.compare import compare
from ..changes.report import report
from ..choose import context_of
from ..errors import RolloutError
from ..live import live_objects
from ..render import Rendered

_MOST_OBJECTS = 12
_MOST_FIELDS = 8


def what_would_change(stacks: Mapping[str, Stack], rendering: Mapping[str, Rendered]) -> Text:
    """Return what would change in each plane, or why that plane cannot be asked."""
    changes = {}
    notes: list[str] = []
    for plane, rendered in rendering.items():
        try:
            live = live_objects(context_of(stacks[plane].data_plane), [rendered])[rendered.stack]
        except RolloutError as error:
            notes.append(f"{plane} cannot be compared: {error}")
            continue
        changes[rendered.stack] = compare(live.before, live.after)
        notes += [f"{plane} would refuse: {words}" for words in live.refused]
        if not changes[rendered.stack]:
            notes.append(f"{plane}: nothing would change.")
    out = report(changes, objects=_MOST_OBJECTS, fields=_MOST_FIELDS)
    for line in notes:
        out.append(f"\n{line}" if out else line)
    return out
