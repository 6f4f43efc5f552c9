"""What the commands of rollout and charts share: which stacks they are about, what goes wrong, and how that is told.

A failure is one clear message and an exit code, never a traceback.
"""

import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NoReturn

import typer
from tidegate_contracts.credentials import masked

from .problems import DefinitionError, escaped, listed
from .stack import Definition, Stack

FAILED = 1
WRONG_INPUT = 2
NO_ENGINE = 6
STOPPED = 130

EngineName = Literal["pulumi", "helm"]


class CommandError(Exception):
    """A command cannot do what it was asked to; the text says what, why and what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        """Keep the exit code with the message, in which credentials are masked."""
        super().__init__(masked(message))
        self.code = code


@dataclass
class ExitStatus:
    """What a command has changed so far, in words: printed when it is stopped with Ctrl-C."""

    text: str = "nothing was changed"
    failure: str = ""  # What a command that failed has said last.


@contextmanager
def exit_codes(outcome: ExitStatus | None = None) -> Iterator[ExitStatus]:
    """Turn every failure of a command into its message on standard error and its exit code."""
    outcome = outcome or ExitStatus()
    try:
        yield outcome
    except DefinitionError as error:
        _fail(outcome, str(error), WRONG_INPUT)
    except CommandError as error:
        _fail(outcome, str(error), error.code)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of our output has gone, and typer knows what to do then
        _fail(outcome, reason(error), FAILED)
    except KeyboardInterrupt:
        _fail(outcome, f"stopped; {outcome.text}", STOPPED)


def _fail(outcome: ExitStatus, message: str, code: int) -> NoReturn:
    outcome.failure = message
    print(message, file=sys.stderr)
    raise typer.Exit(code)


def reason(error: OSError) -> str:
    """Return why the system refused something, and which file it was about."""
    why = error.strerror or str(error)
    return f"{escaped(str(error.filename))}: {why}" if error.filename else why


def unknown(what: str, name: str, known: Iterable[str]) -> CommandError:
    """Return the error for a name that does not exist, with the nearest that does."""
    return none_such(f"There is no {what} {escaped(name)}", name, known)


def none_such(what: str, name: str, known: Iterable[str]) -> CommandError:
    """Return the error that begins with the sentence `what`, and goes on with the nearest name and all known ones."""
    names = list(dict.fromkeys(known))
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f": did you mean {near[0]}?" if near else "."
    return CommandError(f"{what}{hint} There are: {listed(names)}.", WRONG_INPUT)


def chosen_stacks(definition: Definition, name: str | None) -> tuple[Stack, ...]:
    """Return the stack of that name, or all of them; raise CommandError with the nearest name."""
    if name is None:
        return definition.stacks
    found = tuple(stack for stack in definition.stacks if stack.name == name)
    for stack in definition.stacks if not found else ():
        if name in (former.name for former in stack.former()):
            raise CommandError(f"Stack {escaped(name)} is called {stack.name} now: --stack {stack.name}.", WRONG_INPUT)
    if not found:
        raise unknown("stack", name, (stack.name for stack in definition.stacks))
    return found
