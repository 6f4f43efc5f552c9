"""Images."""

import re
from collections.abc import Iterator

from ..objects import Environment, text
from ..rule import Breach, guardrail

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@guardrail(
    "Run `make pin` where the registry can be reached; in a values file, write image: repository:tag@sha256:….",
    shared="advisory",
)
def images_are_pinned_by_digest(environment: Environment) -> Iterator[Breach]:
    """Every image is named by its digest.

    A tag can be moved: what runs then is not what was tested.
    """
    for pod in environment.pods:
        for image in dict.fromkeys(text(one.get("image")) for one in pod.containers):
            if not _DIGEST.search(image):
                yield Breach(pod.maker, f"image {image or '(none)'} has no digest")
