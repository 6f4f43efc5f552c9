"""Images, with tags here and digests in `images.lock`."""

from collections.abc import Mapping
from typing import Annotated

from .base import Named, Without, form

_COMPONENT = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST, _PATHS = f"{_COMPONENT}(:[0-9]+)?", f"(/{_COMPONENT})*"
_NAME = "an image's name without tag or digest, such as nvcr.io/nvidia/tritonserver"
REPOSITORY = f"({_HOST}/)?{_COMPONENT}{_PATHS}"
Repository = Annotated[str, form(f"^{REPOSITORY}$", _NAME, max_length=255)]
_MIRROR = "a host and a path, such as mirror.example.com:5000/nvcr"
RegistryMirror = Annotated[str, form(f"^{_HOST}{_PATHS}$", _MIRROR)]
RegistryHost = Annotated[str, form(f"^{_HOST}$", "the host of a registry, such as nvcr.io or localhost:5000")]


Backend = Annotated[str, form(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "a Triton backend, such as onnxruntime")]

PROXY_IMAGE = "proxy"
POLICY_IMAGE = "eviction-policy"
"""Names of the images that every environment runs. Servers name their images."""


class Image(Named):
    """Container images. `tidegate pin` writes their digests to `images.lock`."""

    repository: Repository
    """Registry and repository."""
    tag: Annotated[
        str,
        form(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", "an image tag: letters, digits, dots, dashes and underscores"),
        Without(r"^latest$", "is a tag that changes with every push: set a version"),
    ]
    """Tag, in quotes if it looks like a number."""
    backends: tuple[Backend, ...] = ()
    """Triton backends in the image, such as `python`. If set, `tidegate deploy` refuses models of others."""

    @property
    def registry(self) -> str:
        """Return the host of the registry, as `docker pull` parses it."""
        host, slash, _ = self.repository.partition("/")
        return host if slash and ({".", ":"} & set(host) or host == "localhost") else "docker.io"

    def mirrored(self, registries: Mapping[str, str]) -> str:
        """Return its repository, with the registry's host replaced by its mirror, if any."""
        mirror = registries.get(self.registry)
        return f"{mirror}/{self.repository.removeprefix(f'{self.registry}/')}" if mirror else self.repository

    @property
    def reference(self) -> str:
        return f"{self.repository}:{self.tag}"
