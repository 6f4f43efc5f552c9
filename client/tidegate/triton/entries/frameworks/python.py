"""Models that are Python programs, for the Python backend: read as text, never run."""

import ast
import stat
from pathlib import Path

from ....errors import UsageError
from .reading import Reading, bounded, config_of, unreadable

PROGRAM = "model.py"
LIMIT = 1 << 20  # Bytes of a program: parsed, it takes some hundred times as much memory.
_LEFT = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".DS_Store"})


def read(source: Path) -> Reading:
    """Read a model.py with a TritonPythonModel, or a folder with it and what it needs."""
    config, files = config_of("python"), files_of(source)
    if completes_itself(program(source)):
        note = "its program tells Triton the tensors that config.pbtxt does not name (auto_complete_config)"
        return Reading(config, files, notes=(note,))
    return Reading(config, files, missing="a Python program's tensors are what you say they are")


def program(source: Path) -> ast.Module:
    """Return the parsed text of a program, or of the model.py in a folder."""
    file = source / PROGRAM if source.is_dir() else source
    try:
        return ast.parse(bounded(file, LIMIT, "a program"), str(file))
    except SyntaxError as error:
        raise UsageError("it is no valid Python", where=f"{file}:{error.lineno or 1}", why=error.msg) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise unreadable(file, "Python program", error) from None


def text_of(node: ast.AST) -> str:
    """Return the text of an expression; nothing where it is nested too deeply for Python."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def classes(module: ast.Module) -> list[ast.ClassDef]:
    """Return the classes at the top of a program."""
    return [node for node in module.body if isinstance(node, ast.ClassDef)]


def is_served(module: ast.Module) -> bool:
    """Tell whether it is a program of the Python backend, which is to have a TritonPythonModel."""
    names = {node.name for node in classes(module)}
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return "TritonPythonModel" in names


def completes_itself(module: ast.Module) -> bool:
    """Tell whether the program names its tensors to Triton itself (`auto_complete_config`)."""
    methods = [each for node in classes(module) for each in node.body if isinstance(each, ast.FunctionDef)]
    return any(each.name == "auto_complete_config" for each in methods)


def files_of(source: Path) -> tuple[tuple[str, Path], ...]:
    """Return what goes into the version's folder: the program, or all of a folder; raises UsageError for odd files."""
    if not source.is_dir():
        return ((PROGRAM, source),)
    found = []
    for path in sorted(source.rglob("*")):
        below = path.relative_to(source)
        if _LEFT & set(below.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode):  # links to files are followed
            raise UsageError("it is no file that can be copied", where=path, do="take it out of the folder")
        found.append((below.as_posix(), path))
    return tuple(found)
