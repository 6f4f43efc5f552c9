"""From a file's name to its text, and what is said when that cannot be."""

import difflib
import itertools
import os
import re
from typing import Final, NoReturn

from ..problems import DefinitionError, Position, Problem, escaped, listed

MAX_BYTES: Final = 10 * 1024 * 1024
LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\U0010ffff]")
_OTHER_ENCODINGS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def read_text(file: str) -> str:
    """Return the text of a UTF-8 file; raise DefinitionError when it is none."""
    data = _read_bytes(file)
    for mark, name in _OTHER_ENCODINGS:
        if data.startswith(mark):
            refuse(file, f"the file is {name} text", do="Save as UTF-8 (your editor calls it the file's encoding).")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = len(LINE_BREAK.findall(before.decode("utf-8", "replace"))) + 1
        column = len(before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :].decode("utf-8", "replace")) + 1
        refuse(
            Position(file, line, column),
            f"byte 0x{data[error.start]:02x} at offset {error.start} (line {line}) is not UTF-8",
            "A definition is a text file in UTF-8.",
            "Save as UTF-8; if this is not a text file at all, check the file's name.",
        )


def check_text(text: str, file: str) -> None:
    """Refuse a text that is too long, or that no text file would hold."""
    if len(text) > MAX_BYTES:
        _refuse_size(file)
    if bad := _NOT_TEXT.search(text):
        refuse(
            _position_in(text, bad.start(), file),
            f"the character U+{ord(bad.group()):04X} cannot stand in a text file",
            "It looks like a binary file, or one in another encoding than UTF-8." if bad.group() == "\0" else "",
            "Remove it, or check that this is the file you meant.",
        )


def refuse(where: Position | str, what: str, why: str = "", do: str = "") -> NoReturn:
    """Raise a DefinitionError of one problem."""
    raise DefinitionError([Problem(where, "", what, why, do)])


def _refuse_size(file: str) -> NoReturn:
    refuse(file, f"the file is larger than {MAX_BYTES // 1024 // 1024} MB", "No definition is that large.")


def _read_bytes(file: str) -> bytes:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        why, do = _near_names(file)
        refuse(file, "there is no such file", why, do)
    except IsADirectoryError:
        inside = [name for name in _names_in(file) if name.endswith((".yaml", ".yml"))]
        refuse(file, "this is a folder, not a file", do=f"In it: {listed(inside, 10)}." if inside else "")
    except PermissionError:
        refuse(file, "the file may not be read", do="Check its permissions, and who you are running as.")
    except OSError as error:
        refuse(file, f"the file cannot be read: {error.strerror or error}")
    except ValueError:  # a NUL, or text that no file system can encode
        refuse(file, "this cannot be the name of a file")
    if len(data) > MAX_BYTES:
        _refuse_size(file)
    return data


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, 2_000))
    except OSError:
        return []


def _near_names(file: str) -> tuple[str, str]:
    folder, name = os.path.split(file)
    if folder and not os.path.isdir(folder):
        return f"There is no folder {escaped(folder)} either.", ""
    names = _names_in(folder or ".")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    near = near or [other for other in names if other.endswith((".yaml", ".yml"))][:3]
    return "", f"Did you mean {' or '.join(escaped(os.path.join(folder, other)) for other in near)}?" if near else ""


def _position_in(text: str, offset: int, file: str) -> Position:
    line, begin = 1, 0
    for found in LINE_BREAK.finditer(text, 0, offset):
        line, begin = line + 1, found.end()
    return Position(file, line, offset - begin + 1)
