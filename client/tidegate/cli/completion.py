"""Shell completion of environments and models, from `environments.json` and without network calls."""

from contextlib import suppress
from functools import partial

from typer import Argument, Context, Option


def environments() -> list[str]:
    """Return the names of the known environments. Empty if the file cannot be read."""
    from ..environments import load

    with suppress(Exception):
        return sorted(each.name for each in load().environments)
    return []


def models(ctx: Context) -> list[str]:
    """Return the models of the environment on the command line so far, or of all. Empty if the file cannot be read."""
    from ..environments import load

    with suppress(Exception):
        named = ctx.params.get("environment")
        known = [each for each in load().environments if named in (None, each.name)]
        return sorted({model.name for each in known for plane in each.planes for model in plane.models})
    return []


model_argument = partial(Argument, autocompletion=models)
environment_argument = partial(Argument, autocompletion=environments)
environment_option = partial(Option, autocompletion=environments)
