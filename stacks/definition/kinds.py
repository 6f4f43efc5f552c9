"""The class of a server, and so its keys, by its `kind`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from .openai import OpenaiServer
from .servers import Server
from .triton import TritonServer

KINDS: Final[Mapping[str, type[Server]]] = {"triton": TritonServer, "openai": OpenaiServer}


class TritonByDefault:
    """Annotation of a server's type: kind is triton by default, in validation and in the schema for editors."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda server: {"kind": "triton", **server} if isinstance(server, Mapping) else server, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        found["discriminator"]["default"] = "triton"
        return found


AnyServer = Annotated[TritonServer | OpenaiServer, Field(discriminator="kind"), TritonByDefault()]
