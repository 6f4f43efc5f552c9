"""Breaks lines at random places, one at a time, and reports which of them the tests notice: `make mutation`.

Works in a copy of the committed tree. A mutant is tried with the test files that import its file, the quick ones first,
then with the type checker, then with the tests that mirror its folder. Whatever fails, or takes far longer than it
should, has noticed it.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

from .order import place
from .test_rooms import files, graph, imported

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900  # Time limit of one step; the mirrored tests of a whole package take a third of it.
NOT_FIRST = ("tests/node", "tests/lab/demo", "tests/lab/bench", "tests/docs")
"""Their parts take a minute to start, and hardly anything is seen there alone."""
SWAPPED: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.And: "or",
    ast.Or: "and",
}  # fmt: skip


def mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each place of a program that can be broken: its line, what stands there, and the program with it broken.

    The rest stays as it is written: without its comments, the type checker would notice every mutant of some files.
    """
    data = text.encode()
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
    for node in ast.walk(ast.parse(text)):
        for part, new in _broken(node, partial(ast.get_source_segment, text)):
            begin = starts[part.lineno - 1] + part.col_offset
            end = starts[(part.end_lineno or part.lineno) - 1] + (part.end_col_offset or 0)
            yield part.lineno, data[begin:end].decode(), (data[:begin] + new.encode() + data[end:]).decode()


def _broken(node: ast.AST, said: Callable[[ast.AST], str | None]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what to replace of a comparison, a condition, a number, an answer or a call for its effect, and by what."""
    match node:
        case ast.Compare(ops=[op], comparators=[right]):
            yield node, f"(({said(node.left)}) {SWAPPED[type(op)]} ({said(right)}))"
        case ast.BoolOp():
            yield node, "(" + f" {SWAPPED[type(node.op)]} ".join(f"({said(value)})" for value in node.values) + ")"
        case ast.BinOp() if type(node.op) in SWAPPED and not any(map(_is_text, (node.left, node.right))):
            yield node, f"(({said(node.left)}) {SWAPPED[type(node.op)]} ({said(node.right)}))"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare) and said(test) != "TYPE_CHECKING":
                yield test, f"(not ({said(test)}))"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Return(value=ast.expr() as value) if said(value) != "None":
            yield node, "return None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "None"


def _is_text(part: ast.expr) -> bool:
    return isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))


def mirrored(path: Path) -> list[str]:
    """Return the folders of tests that mirror a file of the tree, the narrowest first."""
    parts = [part for part in path.parent.parts if not part.startswith("tidegate")]
    if parts[:2] == ["policies", "guardrails"]:
        parts = parts[1:]
    folders = [Path("tests", *parts[:depth]) for depth in range(len(parts), 0, -1)]
    return [str(folder) for folder in folders if (ROOT / folder).is_dir()]


@cache
def _imports() -> dict[str, set[str]]:
    """Return what each test file imports of the product."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(file.relative_to(ROOT)): set(imported("tests", file)) for file in files}


def importing(path: Path) -> list[str]:
    """Return the test files that import a file of the tree, or else what imports it, those that take longest last."""
    module = next((name for name, file in files().items() if file == path), "")
    for modules in ({module}, {name for name, others in graph().items() if module in others}):
        if found := [test for test, names in _imports().items() if modules & names and not test.startswith(NOT_FIRST)]:
            return sorted(found, key=place, reverse=True)
    return []


def noticed(file: Path, source: str, copy: Path, thorough: bool) -> str | None:
    """Return which step notices that a file of the copy has another source; None when it survives all of them."""
    path = file.relative_to(ROOT)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(["--thorough"] * thorough)]
    steps = [("tests that import it", [*pytest, *found])] if (found := importing(file)) else []
    steps.append(("types", [sys.executable, "-m", "mypy"]))
    steps += [(folder, [*pytest, folder]) for folder in mirrored(path)[:2]]
    kept = (copy / path).read_text("utf-8")
    (copy / path).write_text(source, "utf-8")
    try:
        return next((name for name, command in steps if _fails(command, copy)), None)
    finally:
        (copy / path).write_text(kept, "utf-8")


def _fails(command: list[str], copy: Path) -> bool:
    paths = [part.replace(str(ROOT), str(copy)) for part in os.environ["PYTHONPATH"].split(os.pathsep)]
    # No bytecode: a mutant may be as long as what it stands for, and written within the same second.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=quiet, stderr=quiet, start_new_session=True
    ) as run:
        try:
            return run.wait(SECONDS) not in (0, 5)  # 5: pytest found no test
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, 9)
            return True


def main() -> None:
    """Try mutants of lines at random, print each with what noticed it, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("packages", nargs="*", help="folders or files of the tree; the whole product by default")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--thorough", action="store_true", help="with the tests that only `make test-all` runs")
    options = parser.parse_args()
    tracked = subprocess.run(
        ["git", "ls-files", *options.packages], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = sorted({ROOT / name for name in tracked.stdout.splitlines()} & {*files().values()})
    lines = [
        (file, line) for file in modules for line in sorted({line for line, *_ in mutants(file.read_text("utf-8"))})
    ]
    chance = random.Random(options.seed)
    chosen = chance.sample(lines, min(options.count, len(lines)))
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
        for number, (file, line) in enumerate(chosen, 1):
            found = [each for at, *each in mutants(file.read_text("utf-8")) if at == line]
            what, source = chance.choice(found)
            by = noticed(file, source, Path(folder), options.thorough)
            survivors += by is None
            where = f"{file.relative_to(ROOT)}:{line}: {' '.join(what.split())[:100]}"
            print(f"{number}/{len(chosen)} {where}: {f'noticed by {by}' if by else 'SURVIVED'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} noticed: {1 - survivors / max(1, len(chosen)):.0%}")


if __name__ == "__main__":
    main()
