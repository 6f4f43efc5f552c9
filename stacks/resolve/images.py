"""References to images: with their digests, and from the data plane's mirrors."""

from ..definition.images import Image
from ..images_lock import ImagesLock
from ..stack import Stack


def image_reference(stack: Stack, lock: ImagesLock, name: str) -> str:
    """Return the image of a name: from the data plane's mirror, with its digest where there is one."""
    image = next(image for image in stack.platform.images if image.name == name)
    digest = lock.digest(image.reference)
    return f"{mirrored(image, stack.data_plane.registries)}:{image.tag}" + (f"@{digest}" if digest else "")


def mirrored(image: Image, registries: dict[str, str]) -> str:
    """Return an image's repository, with its registry host replaced by a mirror where the data plane has one."""
    host, slash, rest = image.repository.partition("/")
    if not slash or not ({".", ":"} & set(host) or host == "localhost"):
        host, rest = "docker.io", image.repository
        return f"{registries[host]}/{rest}" if host in registries else image.repository
    return f"{registries.get(host, host)}/{rest}"
