"""A definition with a server of the kind `toy` beside a Triton, in the rooms that make an environment of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args
from unittest.mock import patch

import yaml

import components.kinds
import stacks.definition.kinds
import stacks.resolve.kinds
from charts.values_schema import values_schema
from stacks.definition import Platform
from stacks.definition.triton import TritonServer
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.model_keys import keys_of
from stacks.stack import Definition
from stacks.validate import validate

from .toy.components import ToyKind as ToyComponents
from .toy.stacks import ToyKind as ToyResolving
from .toy.stacks import ToyServer

_FILE = Path(__file__).parents[1] / "definitions" / "cpu-only.yaml"


@contextmanager
def toys_are_known() -> Iterator[None]:
    """Add the toy to the tables of kinds; what was built of the tables before is built anew."""

    _, by_kind = get_args(stacks.definition.kinds.AnyServer)

    def build() -> None:
        keys_of.cache_clear()
        Platform.model_rebuild(force=True)
        values_schema.cache_clear()

    with (
        patch.dict(stacks.definition.kinds.KINDS, toy=ToyServer),
        patch.dict(Platform.__annotations__, servers=tuple[Annotated[TritonServer | ToyServer, by_kind], ...]),
        patch.dict(stacks.resolve.kinds.KINDS, toy=ToyResolving()),
        patch.dict(components.kinds.KINDS, toy=ToyComponents()),
    ):
        build()
        yield
    build()


def with_toys(**more: Any) -> Definition:
    """The smallest definition of the tests, with a server of toys; `more` stands in that server."""
    tree = yaml.safe_load(_FILE.read_text("utf-8"))
    tree["images"].append({"name": "toy", "repository": "registry.example.com/toy", "tag": "1.0"})
    pools = [{"name": name, "loading": {"mode": "preload"}} for name in ("main", "more")]
    server = {
        "name": "toys",
        "kind": "toy",
        "image": "toy",
        "repository": {"dataset": "models", "path": "toys"},
        "pools": pools,
    }
    tree["servers"].append({**server, **more})
    tree["models"].append({"name": "greeter", "server": "toys", "pool": "more"})
    return validate(parse(yaml.safe_dump(tree), "toys.yaml"), ImagesLock())
