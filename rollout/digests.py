"""What runs in a cluster is what was tested: an image with a digest, not one with a tag that somebody can move."""

from collections.abc import Sequence

from stacks.stack import Definition, Stack

from .errors import RolloutError
from .terminal import make


def refuse_tags(definition: Definition, stacks: Sequence[Stack]) -> None:
    """Raise RolloutError where a stack that is not local has images without a digest."""
    missing: dict[str, list[str]] = {}
    for stack in stacks:
        for image in stack.platform.images:
            if not stack.environment.local and definition.lock.digest(image.reference) is None:
                missing.setdefault(image.reference, []).append(stack.name)
    if missing:
        lines = [f"  {image} ({', '.join(names)})" for image, names in missing.items()]
        raise RolloutError(
            "These images have no digest in images.lock:\n"
            + "\n".join(lines)
            + "\nA tag can be moved, and then what runs is not what was tested; only an environment with\n"
            "`local: true` may run one. Nothing was changed. Where the registries can be reached, run\n"
            f"  {make('pin', DEFINITION=definition.file)}\nand commit images.lock."
        )
