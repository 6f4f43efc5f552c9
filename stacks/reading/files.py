"""Reads the text of a file, and reports why it cannot."""

import os
import re
from contextlib import suppress
from typing import Final, NoReturn

from ..definition.base import did_you_mean, nearest
from ..problems import DefinitionError, Position, Problem

MAX_BYTES: Final = 10 * 1024 * 1024
LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
NOT_TEXT: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\U0010ffff]")


def read_text(file: str) -> str:
    """Return the text of a UTF-8 file. Raises DefinitionError if it cannot be read or decoded."""
    data = _read_bytes(file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        at = _position_in(before, len(before), file)
        what = f"byte 0x{data[error.start]:02x} at offset {error.start} (line {at.line}) is not UTF-8"
        do = "Set the encoding of the file to UTF-8 in your editor, or check the file's name."
        refuse(at, what, "A definition is a text file in UTF-8.", do)


def check_text(text: str, file: str) -> None:
    """Refuse a text that is too long, or that contains control characters."""
    if len(text) > MAX_BYTES:
        _refuse_size(file)
    if bad := NOT_TEXT.search(text):
        what = f"a text file cannot contain the character U+{ord(bad.group()):04X}"
        why = "The file seems to be binary, or not in UTF-8." if bad.group() == "\0" else ""
        do = "Remove it, or check the file's name."
        refuse(_position_in(text, bad.start(), file), what, why, do)


def refuse(where: Position | str, what: str, why: str = "", do: str = "") -> NoReturn:
    """Raise a DefinitionError with one problem."""
    raise DefinitionError([Problem(where, "", what, why, do)])


def _refuse_size(file: str) -> NoReturn:
    refuse(file, f"the file is larger than {MAX_BYTES // 1024 // 1024} MB", "No definition is that large.")


def _read_bytes(file: str) -> bytes:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        directory, name = os.path.split(file)
        there: list[str] = []
        with suppress(OSError):  # The directory does not exist, or is not readable.
            there = sorted({*os.listdir(directory or ".")} - {name})
        near = nearest(name, there)
        init = "Change to the directory of your platform, or run `tidegate init`."
        refuse(file, "there is no such file", do=did_you_mean(near and os.path.join(directory, near)).strip() or init)
    except IsADirectoryError:
        refuse(file, "this is a directory, not a file")
    except OSError as error:
        refuse(file, f"the file cannot be read: {error.strerror or error}")
    except ValueError:  # A NUL, or text that no file system can encode.
        refuse(file, "this is not a valid name of a file")
    if len(data) > MAX_BYTES:
        _refuse_size(file)
    return data


def _position_in(text: str, offset: int, file: str) -> Position:
    line, begin = 1, 0
    for found in LINE_BREAK.finditer(text, 0, offset):
        line, begin = line + 1, found.end()
    return Position(file, line, offset - begin + 1)
