"""TorchScript: reads an archive's listing and source text only, and never loads its pickled data."""

import ast
import lzma
import pickletools
import zipfile
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ....errors import UsageError
from .python import LIMIT as CODE_LIMIT
from .reading import Reading, config_of, unreadable

SCRIPT = "model.pt"
LIMIT = 16 << 20  # bytes to unpack of one member of an archive
NO_SCRIPT = (
    "pickled weights need code and are never loaded. Save the model with torch.jit.script(model).save('model.pt'), "
    "or export it with torch.onnx.export"
)
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, RuntimeError, NotImplementedError, EOFError, KeyError,
    ValueError,
)  # fmt: skip
"""Exceptions for a damaged archive."""
_NAMES = "the names of outputs are NAME__0, NAME__1, … in the order in which forward returns them, such as OUTPUT__0"


def is_script(names: Collection[str]) -> bool:
    """Return whether a zip archive with these members is TorchScript: it has code in addition to its pickled data."""
    below = {name.partition("/")[2] for name in names}
    return "data.pkl" in below and any(name.startswith("code/") for name in below)


def read_script(source: Path) -> Reading:
    """Read the arguments and results of forward. TorchScript has no types of elements and no shapes."""
    try:
        with zipfile.ZipFile(source) as archive:
            if not is_script(archive.namelist()):
                raise UsageError("it is an archive of PyTorch, but not TorchScript", where=source, do=NO_SCRIPT)
            forward = _script_forward(archive)
    except BROKEN as error:
        raise unreadable(source, "TorchScript archive", error) from None
    config, arguments = config_of("pytorch", "pytorch_libtorch"), _arguments(forward)
    missing = f"TorchScript does not contain the types and shapes of its tensors: {_signature_text(forward)}"
    return Reading(config, ((SCRIPT, source),), arguments=arguments, missing=missing)


def _signature_text(forward: ast.FunctionDef | None) -> str:
    if forward is None:
        return _NAMES
    names = ", ".join(each.arg for each in forward.args.args[1:])
    returned = f", and returns {_text(forward.returns)}" if forward.returns else ""
    return f"forward takes {names or 'nothing'}{returned}, and {_NAMES}"


def _text(node: ast.AST) -> str:
    """Return the text of an expression. Empty if it is nested too deeply for Python."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def _arguments(forward: ast.FunctionDef | None) -> tuple[str, ...] | None:
    taken = forward.args.args[1:] if forward else []
    types = [_text(each.annotation) if each.annotation else "" for each in taken]
    plain = all(each == "Tensor" or each.startswith("List[") for each in types)
    return tuple(each.arg for each in taken) if forward and plain else None


def _script_forward(archive: zipfile.ZipFile) -> ast.FunctionDef | None:
    """Return forward of the archive's class, or None if its Python text lacks it."""
    root = archive.namelist()[0].partition("/")[0]
    package, name = _outermost(_unpacked(archive, f"{root}/data.pkl"))
    try:
        code = _unpacked(archive, f"{root}/code/{package.replace('.', '/')}.py")
        if len(code) > CODE_LIMIT:
            return None
        text = ast.parse(code)
    except (SyntaxError, ValueError, KeyError, RecursionError):
        return None
    classes = [node for node in text.body if isinstance(node, ast.ClassDef) and node.name == name]
    functions = [each for node in classes for each in node.body if isinstance(each, ast.FunctionDef)]
    return next((each for each in functions if each.name == "forward"), None)


def _outermost(pickled: bytes) -> tuple[str, str]:
    """Return package and name of the first class in pickled data. Lists its operations without executing them."""
    with suppress(ValueError):
        for operation, argument, _ in pickletools.genops(pickled):
            if operation.name == "GLOBAL":
                package, _, name = str(argument).partition(" ")
                return package, name
    return "", ""


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        return member.read(LIMIT)
