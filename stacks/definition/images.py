"""Images: by name and tag here, by digest in `images.lock`."""

from typing import Annotated

from pydantic import Field

from .base import Named


class Image(Named):
    """One container image. Its digest is not written here: `make pin` asks the registry and writes `images.lock`."""

    repository: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9]+([._-]+[a-z0-9]+)*(\.[a-z0-9-]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
            json_schema_extra={"hint": "an image's name without tag or digest, such as nvcr.io/nvidia/tritonserver"},
        ),
    ]
    """Registry and repository, as `docker pull` takes it."""
    tag: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$",
            json_schema_extra={"hint": "an image tag: letters, digits, dots, dashes and underscores"},
        ),
    ]
    """Tag; quote it when it looks like a number."""

    @property
    def reference(self) -> str:
        """`repository:tag`, the key in `images.lock`."""
        return f"{self.repository}:{self.tag}"
