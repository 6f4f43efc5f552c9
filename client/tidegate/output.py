"""Output of the commands: results on standard output, progress and errors on standard error."""

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from .errors import ExitCode, TidegateError

WIDTH = 160  # columns if the output is not a terminal, unless COLUMNS is set
DEFECT = 70  # exit code of a defect in the client (EX_SOFTWARE of sysexits.h)
TRACEBACK = "TIDEGATE_TRACEBACK"
Advance = Callable[[int], None]
Text = str | None  # Types of options that can be omitted.
Texts = list[str] | None
File = Path | None
Trusted = Annotated[bool, typer.Option("--trusted", help="Accept code in a language model's entry. Read it first.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints texts unchanged: no markup, no emoji codes, no highlighting."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def note(text: str) -> None:
    """Print a message about the run on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Replace control characters, which a terminal would execute: parts of the text may come from others."""
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def print_json(value: object) -> None:
    """Print a result as JSON. Messages use their wire names."""
    print(json.dumps(to_jsonable_python(value, by_alias=True, fallback=str), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table. A column whose name begins with `#` holds numbers. Cells wrap if the table is too wide."""
    table = Table(title=printable(title) or None, title_justify="left")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith("#") else "left"
        table.add_column(column.removeprefix("#"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else printable(str(cell)) for cell in row))
    console().print(table)


@contextmanager
def progress(what: str, total_bytes: int) -> Iterator[Advance]:
    """Show a progress bar if standard error is a terminal. Yields the function that counts bytes."""
    text, rest = TextColumn("{task.description}"), TimeRemainingColumn()
    columns = text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), rest
    to = console(stderr=True)
    with Progress(*columns, console=to, transient=True, disable=not to.is_terminal) as bar:
        task = bar.add_task(what, total=total_bytes)
        yield lambda count: bar.advance(task, count)


def moment(at: datetime | None) -> str:
    """Format a time to the second. Empty for None."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def size(count: int) -> str:
    """Format a number of bytes: 1536 is 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def counted(count: int, thing: str) -> str:
    """Format a count: `1 version`, `2 versions`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn every failure of a command into one message on standard error and an exit code, without a traceback."""
    try:
        yield
    except TidegateError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # The reader of the output has gone. Typer handles that.
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", ExitCode.UNREACHABLE)
    except KeyboardInterrupt:
        _fail("stopped", ExitCode.STOPPED)
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        report = f"Set {TRACEBACK}=1, run the command again, and report the traceback."
        _fail(f"tidegate has a defect: {type(error).__name__}. {report}", DEFECT)


def _fail(message: str, code: int) -> NoReturn:
    print(printable(message), file=sys.stderr)
    raise typer.Exit(code)
