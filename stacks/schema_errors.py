"""Says what pydantic found wrong in words for the person who wrote the file, at the line where it stands."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from .explaining.choice import one_per_mistake
from .explaining.walk import Source, Walk
from .explaining.words import Message
from .problems import Problem, in_order


def problems_from(
    error: ValidationError, document: Source, model: type[BaseModel], base: Sequence[str | int] = ()
) -> list[Problem]:
    """Every mistake that `model` finds in `document`, one problem each, in the order of the file.

    `base` is the path of the validated part, when it was not the whole document.
    """
    walk = Walk(model.__pydantic_core_schema__)
    errors = [details for details in error.errors(include_url=False) if not _is_echo(details)]
    found = [walk.find(details, tuple(base)) for details in errors]
    problems = [Message(each, document, walk).problem() for each in one_per_mistake(found, document, 0)]
    return in_order(dict.fromkeys(problems))


def _is_echo(details: Any) -> bool:
    """Whether a list is called too short only because pydantic does not count its faulty items."""
    return details["type"] == "too_short" and bool(len(details["input"]) >= details["ctx"]["min_length"])
