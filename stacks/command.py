"""Shared code of the commands of rollout and charts. A failure is a message and an exit code, never a traceback."""

import errno
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NoReturn

import typer
from tidegate_contracts.credentials import masked

from .definition.base import did_you_mean, nearest
from .problems import DefinitionError, escaped, listed
from .stack import Definition, Stack, StackId

FAILED = 1
WRONG_INPUT = 2
NO_ENGINE = 6
STOPPED = 130

EngineName = Literal["pulumi", "helm"]
DEFAULTS = {"stacks/inference.yaml", "build/rendered"}
"""Defaults of options. Commands to copy leave them out."""


class CommandError(Exception):
    """A command failed. The text has the problem, its reason and its remedy."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        """Keep the exit code and the message, and mask credentials in it."""
        super().__init__(masked(message))
        self.code = code


@dataclass
class ExitStatus:
    """The changes of a command so far, in words. Ctrl-C prints them."""

    text: str = "nothing was changed"
    failure: str = ""  # The last message of a failed command.


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
            raise  # The reader of the output has exited. Typer handles that.
        _fail(outcome, reason(error), FAILED)
    except KeyboardInterrupt:
        _fail(outcome, f"stopped: {outcome.text}", STOPPED)


def _fail(outcome: ExitStatus, message: str, code: int) -> NoReturn:
    outcome.failure = message
    print(message, file=sys.stderr)
    raise typer.Exit(code)


def reason(error: OSError) -> str:
    """Return the reason of an error of the system, with its file."""
    why = error.strerror or str(error)
    return f"{escaped(str(error.filename))}: {why}" if error.filename else why


def unknown(what: str, name: str, known: Iterable[str]) -> CommandError:
    """Return the error for a name that does not exist, with the nearest that does."""
    return none_such(f"There is no {what} {escaped(name)}", name, known)


def none_such(what: str, name: str, known: Iterable[str]) -> CommandError:
    """Return an error that starts with the sentence `what`, followed by the nearest name and all known names."""
    names = list(dict.fromkeys(known))
    hint = did_you_mean(nearest(name, names, 0.4))
    return CommandError(f"{what}. {hint}There are: {listed(names)}.", WRONG_INPUT)


def chosen_stacks(definition: Definition, name: str | None) -> tuple[Stack, ...]:
    """Return the stack with a name, or all stacks. Raises CommandError with the nearest name."""
    if name is None:
        return definition.stacks
    found = tuple(stack for stack in definition.stacks if stack.name == name)
    for stack in definition.stacks if not found else ():
        if name in (former.name for former in stack.former()):
            what = f"Stack {escaped(name)} has the name {stack.name} now: set --stack {stack.name}."
            raise CommandError(what, WRONG_INPUT)
    if not found:
        raise unknown("stack", name, (stack.name for stack in definition.stacks))
    return found


def in_shell(word: object) -> str:
    """Return a word quoted for a shell, for commands that people copy."""
    return shlex.quote(escaped(str(word)))


def tidegate(verb: str, *words: object, **options: object) -> str:
    """Return `tidegate <verb>` to copy, without empty words and default options. True makes an option a switch."""
    parts = ["tidegate", verb, *(in_shell(word) for word in words if word and str(word) not in DEFAULTS)]
    for name, value in options.items():
        if value and str(value) not in DEFAULTS:
            parts += [f"--{name.replace('_', '-')}", *([] if value is True else [in_shell(value)])]
    return " ".join(parts)


def for_stack(verb: str, stack: StackId, context: str = "", **options: object) -> str:
    """Return `tidegate <verb>` to copy, for one stack of a definition, by default in the context of its data plane."""
    where = {"cluster": context or stack.data_plane.context_name, "stack": stack.name}
    return tidegate(verb, stack.definition, **where, **options)
