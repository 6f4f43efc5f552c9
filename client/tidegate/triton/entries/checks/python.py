"""Models of the Python backend: their program is parsed, never run."""

import ast
from collections.abc import Iterator
from typing import Any

from ....findings import Finding, error, warning
from ..entry import Entry
from ..frameworks.python import CLASS, COMPLETES, LIMIT
from .backends import resolved
from .layout import served


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with the program and the parameters of a model in the Python backend."""
    if resolved(entry).name != "python" or config.runtime:
        return
    programs = list(_programs(entry, config))
    for path, source in programs:
        yield from _program(path, source)
    if not any(COMPLETES in source for _, source in programs):
        for side in ("input", "output"):
            if not getattr(config, side):
                what = f"no {side} is declared"
                why = f"a model of the Python backend has none then, but by its own {COMPLETES.decode()}"
                yield warning(what, "", why, f"declare each {side} with its name, data_type and dims")


def _programs(entry: Entry, config: Any) -> Iterator[tuple[str, bytes]]:
    name = config.default_model_filename or "model.py"
    sizes = {file.path: file.size for file in entry.files}
    for path in (f"{version}/{name}" for version in served(entry)):
        if name.endswith(".py") and sizes.get(path, LIMIT) < LIMIT:
            yield path, (entry.folder / path).read_bytes()


def _program(path: str, source: bytes) -> Iterator[Finding]:
    if b"\0" in source:
        yield error("the program is no text", path)
        return
    try:
        ast.parse(source, path)
    except SyntaxError as problem:
        yield error(f"the program cannot be parsed: {problem.msg}", f"{path}:{problem.lineno or 1}")
        return
    except (RecursionError, MemoryError):
        return  # too deep for a look; Python says more when it runs it
    if CLASS not in source:
        do = f"name the model's class {CLASS.decode()}"
        yield error(f"there is no class {CLASS.decode()}", path, "it is what Triton looks for", do)
