"""`images.lock`: the digests of images. `tidegate pin` gets them from the registries."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from .definition.base import Section, form
from .load import frozen, load
from .problems import DefinitionError
from .schema_errors import problems_from

FILE_NAME = "images.lock"
HEADING = """\
# Digests of images. `tidegate pin` writes this file from the registries. Do not edit it.
"""


class PinnedImage(Section):
    """One image and its digest."""

    image: Annotated[str, Field(min_length=1)]
    """`repository:tag`."""
    digest: Annotated[str, form(r"^sha256:[0-9a-f]{64}$", "sha256: and 64 hex digits, which `tidegate pin` writes")]
    """Digest of the manifest, or of the index for several architectures."""


class ImagesLock(Section):
    """The content of `images.lock`."""

    images: tuple[PinnedImage, ...] = ()
    """Pinned images, sorted by name."""

    def digest(self, reference: str) -> str | None:
        """Return the digest of `repository:tag`, or None if it is not pinned."""
        return next((pin.digest for pin in self.images if pin.image == reference), None)


def read_images_lock(folder: Path) -> ImagesLock:
    """Read the lock file next to a definition. Without a file, no image is pinned. Raises DefinitionError."""
    path = folder / FILE_NAME
    if not os.path.lexists(path):
        return ImagesLock()
    document = load(path)
    try:
        return ImagesLock.model_validate(frozen(document.tree))
    except ValidationError as error:
        raise DefinitionError(problems_from(error, document, ImagesLock)) from None


def lock_text(pins: Sequence[PinnedImage]) -> str:
    """Return the text of a lock file with these pins."""
    lines = [f"  - image: {pin.image}\n    digest: {pin.digest}\n" for pin in sorted(pins, key=lambda pin: pin.image)]
    return HEADING + ("images:\n" + "".join(lines) if lines else "images: []\n")
