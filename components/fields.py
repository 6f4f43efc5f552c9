"""Types of values that the components' arguments have beside those of the definition."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from stacks.definition.base import LEAST_BYTES, MOST_NUMBER
from stacks.definition.images import Repository

_REPOSITORY = TypeAdapter(Repository).json_schema()["pattern"].removeprefix("^").removesuffix("$")

ImageReference = Annotated[
    str,
    Field(
        pattern=rf"^{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$",
        json_schema_extra={"hint": "repository:tag@sha256:digest"},
    ),
]
Bytes = Annotated[int, Field(ge=LEAST_BYTES, le=MOST_NUMBER)]
