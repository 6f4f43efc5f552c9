"""Reads inputs from files and the command line, and formats outputs. Never unpickles."""

import json
import math
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy

from ..errors import UsageError, install
from .tensors import Answer, Array, type_of

STDIN: Final = "-"


def read_inputs(path: str) -> Any:
    """Return the content of a file for `Model.predict`. `-` is JSON from standard input. Raises UsageError.

    JSON: inputs by name, or a list of rows. NumPy: the only input, or arrays by name. CSV: a table whose first line has
    the column names. It needs pandas.
    """
    kind = ".json" if path == STDIN else Path(path).suffix.lower()
    if kind not in _READERS:
        do = f"use one of {', '.join(_READERS)}"
        raise UsageError(f"cannot read inputs from {kind or 'this kind of'} files", where=path, do=do)
    try:
        return _READERS[kind](path)
    except OSError as error:
        raise UsageError("cannot be read", where=path, why=error.strerror or str(error)) from None
    except (ValueError, OverflowError, EOFError, RecursionError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"not a valid {kind.removeprefix('.').upper()} file", where=path, why=str(error)) from None


def read_words(words: Sequence[str]) -> dict[str, Any]:
    """Parse inputs such as `INPUT=[1, 2]`. A value is JSON, or else text. Raises UsageError."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word!r} is not an input", do="write NAME=VALUE, such as INPUT='[1, 2, 3]'")
        if name in found:
            raise UsageError(f"the input {name} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError) as error:
            if value.lstrip()[:1] in ("[", "{", '"'):  # looks like JSON, not like a text
                why, do = f"{value!r}: {error}", f"quote it for the shell: --input '{name}=[1, 2, 3]'"
                raise UsageError(f"the input {name} is not valid JSON", why=why, do=do) from None
            found[name] = value
    return found


def plain(answer: Answer) -> dict[str, Any]:
    """Return outputs as JSON of the v2 protocol. NaN and infinity become null."""
    plain_outputs = {}
    for name, array in answer.outputs.items():
        data = [_plain(each) for each in array.reshape(-1).tolist()]
        plain_outputs[name] = {"datatype": type_of(array, name), "shape": list(array.shape), "data": data}
    return plain_outputs


def shown(array: Array, count: int) -> list[Any]:
    """Return the first values of an output for display. NaN and infinity stay."""
    values = array.reshape(-1)[:count].tolist()
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in values]


def _numpy(path: str) -> Array | dict[str, Array]:
    loaded = numpy.load(path, allow_pickle=False)
    if isinstance(loaded, numpy.ndarray):
        return loaded
    with loaded as arrays:
        return dict(arrays)


def _json(path: str) -> Any:
    return json.load(sys.stdin) if path == STDIN else json.loads(Path(path).read_bytes())


def _csv(path: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise UsageError("tables need pandas", where=path, do=install("pandas")) from None
    return pandas.read_csv(path)


_READERS: Final[dict[str, Callable[[str], Any]]] = {".json": _json, ".npy": _numpy, ".npz": _numpy, ".csv": _csv}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value
