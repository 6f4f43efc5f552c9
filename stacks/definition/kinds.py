"""The seam for kinds of servers: a server's `kind` decides which class it is of, and so which keys it may have."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from .openai import OpenaiServer
from .servers import Server
from .triton import TritonServer

KINDS: Final[dict[str, type[Server]]] = {"triton": TritonServer, "openai": OpenaiServer}
"""Kind → the class of its servers. The first one is meant where a server does not say its kind."""


class _ByKind:
    """Beside the type of a server: it is of one of the classes in `KINDS`."""

    @property
    def discriminator(self) -> str | None:
        """The key that tells the classes apart, where there are several."""
        return "kind" if len(KINDS) > 1 else None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices: dict[Any, CoreSchema] = {kind: handler.generate_schema(server) for kind, server in KINDS.items()}
        if len(choices) == 1:
            return next(iter(choices.values()))
        union = core_schema.tagged_union_schema(choices, discriminator="kind")
        return core_schema.no_info_before_validator_function(_with_kind, union)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(schema)
        if "discriminator" in made:
            made["discriminator"]["default"] = next(iter(KINDS))
        return made


def _with_kind(server: Any) -> Any:
    return {"kind": next(iter(KINDS)), **server} if isinstance(server, Mapping) else server


if TYPE_CHECKING:
    AnyServer = Server
else:
    AnyServer = Annotated[Union[tuple(KINDS.values())], _ByKind()]  # noqa: UP007 – the kinds are only known here
