"""Images: pinned by digests that a registry gave for these very images."""

from collections.abc import Iterator

from ..problems import Problem
from ..stack import Definition
from .references import suggestion


def the_lock_holds_digests_of_these_images_only(definition: Definition) -> Iterator[Problem]:
    """A digest of another image, such as of the tag before, is stale at best."""
    if definition.lock_document is None:
        return
    named = {image.reference for stack in definition.stacks for image in stack.platform.images}
    seen: set[str] = set()
    for index, pin in enumerate(definition.lock.images):
        if pin.image not in named:
            yield definition.lock_document.problem(
                ("images", index, "image"),
                f"the digest is for an image that {definition.file} does not name, {pin.image}",
                do=f"{suggestion(pin.image, named)} Run `make pin`.",
            )
        if pin.image in seen:
            yield definition.lock_document.problem(
                ("images", index, "image"), f"{pin.image} stands twice", do="Run `make pin`."
            )
        seen.add(pin.image)


def images_have_a_digest(definition: Definition) -> Iterator[Problem]:
    """A tag can be moved; what runs then is not what was tested. On a cluster this becomes an error."""
    for stack in definition.stacks:
        for index, image in enumerate(stack.platform.images):
            if definition.lock.digest(image.reference) is None:
                yield stack.source.problem(
                    ("images", index),
                    f"image {image.reference} has no digest",
                    why="A tag can be moved. A cluster takes no image without a digest, except in local environments.",
                    do="Run `make pin` where the registry can be reached.",
                    severity="advisory",
                )
