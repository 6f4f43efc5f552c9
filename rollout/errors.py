"""What goes wrong, and what is said about it: one clear message and an exit code, never a traceback."""

import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

import typer

from stacks.problems import DefinitionError, escaped, listed

FAILED = 1
WRONG_INPUT = 2
NO_ENGINE = 3
STOPPED = 130


class RolloutError(Exception):
    """Something cannot be done: the text says what, why and what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        """Keep the exit code beside the message."""
        super().__init__(message)
        self.code = code


@dataclass
class Outcome:
    """What has happened so far, in words for somebody who stops a run."""

    text: str = "nothing was changed"


@contextmanager
def answering() -> Iterator[Outcome]:
    """Turn every failure of a command into its message on standard error and its exit code."""
    outcome = Outcome()
    try:
        yield outcome
    except DefinitionError as error:
        _fail(str(error), WRONG_INPUT)
    except RolloutError as error:
        _fail(str(error), error.code)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # whoever read our output has gone, and typer knows what to do then
        _fail(reason(error), FAILED)
    except KeyboardInterrupt:
        _fail(f"stopped; {outcome.text}", STOPPED)


def reason(error: OSError) -> str:
    """Return why the system refused something, and which file it was about."""
    why = error.strerror or str(error)
    return f"{escaped(str(error.filename))}: {why}" if error.filename else why


def unknown(what: str, name: str, known: Iterable[str]) -> RolloutError:
    """Return the error for a name that does not exist, with the nearest that does."""
    return none_such(f"There is no {what} {escaped(name)}", name, known)


def none_such(what: str, name: str, known: Iterable[str]) -> RolloutError:
    """Return the error that says this in words of its own, and what there is."""
    names = list(dict.fromkeys(known))
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f": did you mean {near[0]}?" if near else "."
    return RolloutError(f"{what}{hint} There are: {listed(names)}.", WRONG_INPUT)


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
