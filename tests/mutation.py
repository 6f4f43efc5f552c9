"""Breaks lines at random places, one at a time, and tells which of them the tests notice: `make mutation`.

Works in copies of the committed tree. A mutant is tried first with the test files that import its file, the quick ones
first, then with the type checker, then with the tests that mirror its folder, at last, with --whole, with all tests.
Whatever fails, or takes far longer than it should, has noticed it.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

from .order import place
from .test_rooms import files, graph, imported

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900  # Time limit of one step; the mirrored tests of a whole package take a third of it.
WHOLE_SECONDS = 3600
NOT_FIRST = ("tests/node", "tests/lab/demo", "tests/lab/bench", "tests/docs")
"""Their parts take a minute to start, and hardly anything is seen there alone."""
SWAPPED: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.And: "or",
    ast.Or: "and",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A place in a file, and what is to stand there instead."""

    file: Path
    line: int
    old: str
    new: str
    source: str  # The whole file with the change in it.


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield what can be broken in a file: comparisons, conditions, numbers, answers, and calls for their effect."""
    text = file.read_text("utf-8")
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    for node in ast.walk(tree):
        for part, new in _broken(node, text):
            begin = starts[part.lineno - 1] + part.col_offset
            end = starts[(part.end_lineno or part.lineno) - 1] + (part.end_col_offset or 0)
            old = data[begin:end].decode()
            source = (data[:begin] + new.encode() + data[end:]).decode()
            yield Mutant(file, part.lineno, old, new, source)


def _broken(node: ast.AST, text: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    def said(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, f"(({said(node.left)}) {SWAPPED[type(node.ops[0])]} ({said(node.comparators[0])}))"
    elif isinstance(node, ast.BoolOp):
        yield node, "(" + f" {SWAPPED[type(node.op)]} ".join(f"({said(value)})" for value in node.values) + ")"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED and not _is_text(node):
        yield node, f"(({said(node.left)}) {SWAPPED[type(node.op)]} ({said(node.right)}))"
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare):
        if said(node.test) != "TYPE_CHECKING":
            yield node.test, f"not ({said(node.test)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, str(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and said(node.value) != "None":
        yield node, "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield node, "pass"


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(part, ast.Constant | ast.JoinedStr) and not isinstance(getattr(part, "value", 0), int | float)
               for part in (node.left, node.right))  # fmt: skip


def chosen(packages: list[str], count: int, seed: int) -> list[Mutant]:
    """Return one mutant for each of `count` lines, at random over all lines of the packages that can be broken."""
    tracked = subprocess.run(["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = sorted({ROOT / name for name in tracked.stdout.splitlines()} & {*files().values()})
    rng = random.Random(seed)
    by_line: dict[tuple[Path, int], list[Mutant]] = {}
    for file in modules:
        for mutant in mutants_of(file):
            by_line.setdefault((file, mutant.line), []).append(mutant)
    places = rng.sample(sorted(by_line), min(count, len(by_line)))
    return [rng.choice(by_line[place]) for place in places]


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


def noticed(mutant: Mutant, copy: Path, options: argparse.Namespace) -> str | None:
    """Return which step notices a mutant in the copy; None when it survives all of them."""
    path = mutant.file.relative_to(ROOT)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    tier = ["--thorough"] if options.thorough else []
    steps = (
        [("tests that import it", [*pytest, *tier, *importers], SECONDS)]
        if (importers := importing(mutant.file))
        else []
    )
    steps += [(folder, [*pytest, *tier, folder], SECONDS) for folder in mirrored(path)[:2]]
    steps.insert(1, ("types", [sys.executable, "-m", "mypy"], SECONDS))
    if options.whole:
        whole = [*pytest, *tier, "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "tests"]
        steps.append(("all tests", whole, WHOLE_SECONDS))
    kept = (copy / path).read_text("utf-8")
    (copy / path).write_text(mutant.source, "utf-8")
    try:
        return next((name for name, command, seconds in steps if _fails(command, copy, seconds)), None)
    finally:
        (copy / path).write_text(kept, "utf-8")


def _fails(command: list[str], copy: Path, seconds: int) -> bool:
    paths = [part.replace(str(ROOT), str(copy)) for part in os.environ["PYTHONPATH"].split(os.pathsep)]
    # No bytecode: a mutant may be as long as what it stands for, and written within the same second.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["MYPY_CACHE_DIR"] = f"{copy}.mypy"
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        try:
            return running.wait(seconds) not in (0, 5)  # 5: pytest found no test
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            return True


def main() -> None:
    """Try the mutants, print each with what noticed it, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("packages", nargs="*", help="folders or files of the tree; the whole product by default")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants that are tried side by side")
    parser.add_argument("--thorough", action="store_true", help="with the tests that only `make test-all` runs")
    parser.add_argument("--whole", action="store_true", help="try survivors of the mirrored tests with all tests")
    options = parser.parse_args()
    mutants = chosen(options.packages, options.count, options.seed)
    copies: SimpleQueue[Path] = SimpleQueue()

    def tried(mutant: Mutant) -> tuple[str | None, float]:
        copy, begun = copies.get(), monotonic()
        try:
            return noticed(mutant, copy, options), monotonic() - begun
        finally:
            copies.put(copy)

    survivors = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            copy = Path(folder) / str(number)
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
            with suppress(FileNotFoundError, KeyError):  # what the type checker knows already
                shutil.copytree(os.environ["MYPY_CACHE_DIR"], f"{copy}.mypy")
            copies.put(copy)
        for number, (mutant, (by, seconds)) in enumerate(zip(mutants, pool.map(tried, mutants), strict=True), 1):
            survivors += by is None
            where = f"{mutant.file.relative_to(ROOT)}:{mutant.line}"
            what = f"{' '.join(mutant.old.split())[:60]!r} → {' '.join(mutant.new.split())[:60]!r}"
            verdict = f"noticed by {by}" if by else "SURVIVED"
            print(f"{number}/{len(mutants)} {where}: {what}: {verdict} ({seconds:.0f} s)", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} noticed: {1 - survivors / max(1, len(mutants)):.0%}")


if __name__ == "__main__":
    main()
