"""Images."""

import re
from collections.abc import Iterator

from ..findings import Breach
from ..objects import Environment, text

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def images_are_pinned_by_digest(environment: Environment) -> Iterator[Breach]:
    """Every image is named by its digest.

    A tag can be moved: what runs then is not what was tested.
    """
    for pod in environment.pods:
        for image in dict.fromkeys(text(one.get("image")) for one in pod.containers):
            if not _DIGEST.search(image):
                yield Breach(pod.maker, f"image {image or '(none)'} has no digest")
