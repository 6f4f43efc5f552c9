"""Images: by name and tag here, by digest in `images.lock`."""

from collections.abc import Mapping
from typing import Annotated

from .base import Named, Without, form

_COMPONENT = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST, _FOLDERS = f"{_COMPONENT}(:[0-9]+)?", f"(/{_COMPONENT})*"
_NAME = "an image's name without tag or digest, such as nvcr.io/nvidia/tritonserver"
REPOSITORY = f"({_HOST}/)?{_COMPONENT}{_FOLDERS}"
Repository = Annotated[str, form(f"^{REPOSITORY}$", _NAME, max_length=255)]
_MIRROR = "a host and folders, such as mirror.example.com:5000/nvcr"
RegistryMirror = Annotated[str, form(f"^{_HOST}{_FOLDERS}$", _MIRROR)]
RegistryHost = Annotated[str, form(f"^{_HOST}$", "the host of a registry, such as nvcr.io or localhost:5000")]


Backend = Annotated[
    str, form(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "the name of a backend of Triton, such as onnxruntime")
]

PROXY_IMAGE = "proxy"
POLICY_IMAGE = "eviction-policy"
"""Names of the images that every environment runs; servers name theirs themselves."""


class Image(Named):
    """One container image. `tidegate pin` asks the registry for its digest, and writes it to `images.lock`."""

    repository: Repository
    """Registry and repository, as `docker pull` takes it."""
    tag: Annotated[
        str,
        form(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", "an image tag: letters, digits, dots, dashes and underscores"),
        Without(r"^latest$", "is a tag that moves with every push: name a version"),
    ]
    """Tag; quote it when it looks like a number."""
    backends: tuple[Backend, ...] = ()
    """Backends of Triton that the image has, such as `python` and `onnxruntime`: `tidegate deploy` then refuses models
    of others. Without any it is not looked at."""

    @property
    def registry(self) -> str:
        """Host of the registry, as `docker pull` reads it."""
        host, slash, _ = self.repository.partition("/")
        return host if slash and ({".", ":"} & set(host) or host == "localhost") else "docker.io"

    def mirrored(self, registries: Mapping[str, str]) -> str:
        """Return its repository, with the registry's host replaced by a mirror where there is one for it."""
        mirror = registries.get(self.registry)
        return f"{mirror}/{self.repository.removeprefix(f'{self.registry}/')}" if mirror else self.repository

    @property
    def reference(self) -> str:
        """`repository:tag`, the key in `images.lock`."""
        return f"{self.repository}:{self.tag}"
