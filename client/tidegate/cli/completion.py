"""What a shell completes: names of environments, and of the models that the caller may see.

Silent where that fails, and within a moment: whoever types waits for it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from typer import Argument, Context, Option

if TYPE_CHECKING:
    from ..status import KnownProxy

SECONDS: Final = 2.0
Add = Callable[[str], None]


def environments() -> list[str]:
    """Return the names of the environments that are known here."""

    def names(add: Add) -> None:
        from ..environments import load

        for each in load().environments:
            add(each.name)

    return _soon([names])


def models(ctx: Context) -> list[str]:
    """Return the models that the proxies show which the line names so far, or else all that are known."""
    with suppress(Exception):
        from ..status import proxies

        asked = proxies(*(ctx.params.get(name) for name in ("environment", "plane", "proxy")))
        return _soon([partial(_models, proxy) for proxy in asked])
    return []


def _models(proxy: "KnownProxy", add: Add) -> None:
    with proxy.client(SECONDS, waits=False) as client:
        for each in client.whereabouts().models:
            add(each.model)


def _soon(questions: list[Callable[[Add], None]]) -> list[str]:
    """Return what is found within SECONDS, whatever fails or takes longer."""
    found: dict[str, None] = {}

    def answer(question: Callable[[Add], None]) -> None:
        with suppress(Exception):
            question(lambda name: found.update({name: None}))

    end = monotonic() + SECONDS
    asking = [Thread(target=answer, args=(question,), daemon=True) for question in questions]
    for each in asking:
        each.start()
    for each in asking:
        each.join(max(0.0, end - monotonic()))
    return sorted(found.copy())


model_argument = partial(Argument, autocompletion=models)
environment_argument = partial(Argument, autocompletion=environments)
environment_option = partial(Option, autocompletion=environments)
