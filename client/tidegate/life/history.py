"""What became of a model: the records of all its versions."""

from collections.abc import Sequence

from ..errors import NotFoundError
from ..registry import Record
from .context import Context


def history(context: Context, model: str, environment: str | None = None) -> Sequence[Record]:
    """Return the records of a model, the newest first; of one environment if it is said. Raises TidegateError."""
    if environment is not None:
        context.environment(environment)
    records = context.records(model)
    if not records:
        raise NotFoundError(f"nothing is written down of {model}", do=f"tidegate register <folder of {model}>")
    kept = [each for each in records if environment in (None, each.environment)]
    return sorted(kept, key=lambda each: each.when, reverse=True)
