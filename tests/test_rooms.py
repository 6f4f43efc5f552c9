"""No file imports in a circle, and packages import only the packages in the table of CONTRIBUTING.md."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
ABOVE = {"contracts": "contracts", "service": "service", "proxy": "proxy", "client": "client"}
"""Directories of separately installed packages, which are not part of their modules' names."""
ROW = re.compile(r"^\| `([\w/.]+)` \| [^|]+ \|([^|]*)\|$", re.MULTILINE)


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def files() -> dict[str, Path]:
    """Return every module of the product by its name, without tests."""
    found = {}
    for file in ROOT.rglob("*.py"):
        path = file.relative_to(ROOT)
        if path.parts[0] in ("tests", "build", "requirements") or path.parts[0].startswith("."):
            continue
        parts = path.with_suffix("").parts
        if "build" in parts or all(isinstance(each, ast.Expr) for each in parsed(file).body):
            continue  # At most a docstring.
        parts = parts[2:] if parts[:2] == ("policies", "eviction") else parts[1:] if parts[0] in ABOVE else parts
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported(name: str, file: Path) -> Iterator[str]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (found for alias in node.names if (found := _module(alias.name)))
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            whole = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                if (found := _module(f"{whole}.{alias.name}") or _module(whole)) and found != name:
                    yield found


def _module(name: str) -> str | None:
    return name if name in files() else None


@cache
def graph() -> dict[str, set[str]]:
    """Return the imports of each module. Cached, so that collecting tests stays fast."""
    return {name: set(imported(name, file)) for name, file in files().items()}


@cache
def packages() -> dict[str, set[str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return {package: set(re.findall(r"`([\w/.]+)`", others)) for package, others in ROW.findall(text)}


@cache
def package_of(module: str) -> str:
    path = PurePosixPath(files()[module].relative_to(ROOT))
    return max((package for package in packages() if path.is_relative_to(package)), key=len, default="")


def test_no_files_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " → ".join(error.args[1]))


def test_no_directories_of_a_package_import_each_other_in_a_circle() -> None:
    """You can understand the directory that others import without them."""
    siblings: dict[str, dict[str, set[str]]] = {}
    for name, others in graph().items():
        for other in others:
            if package_of(name) == package_of(other):
                one, two = (files()[each].relative_to(ROOT).parts[:-1] for each in (name, other))
                level = next((at for at, pair in enumerate(zip(one, two, strict=False)) if len({*pair}) > 1), None)
                if level is not None:
                    siblings.setdefault("/".join(one[:level]), {}).setdefault(one[level], set()).add(two[level])
    for folder, imports in siblings.items():
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            pytest.fail(f"a circle of directories in {folder}: " + " → ".join(error.args[1]))


def test_no_import_hides_in_a_text() -> None:
    """An import by a computed name could close a circle that no reader or test notices."""
    hidden = re.compile(r"\b(import_module|__import__|run_module|run_path)\b")
    assert [name for name, file in files().items() if hidden.search(file.read_text("utf-8"))] == []


def test_every_module_is_in_a_package_of_the_table() -> None:
    assert [name for name in files() if not package_of(name)] == []


def test_the_table_of_packages_has_no_circle_and_names_packages_that_are_there() -> None:
    TopologicalSorter(packages()).prepare()
    assert set().union(*packages().values()) <= set(packages())
    assert [package for package in packages() if not (ROOT / package).exists()] == []


def test_packages_import_only_what_the_table_names() -> None:
    wrong = {
        f"{package_of(name)} → {package_of(other)}: {name} imports {other}"
        for name, others in graph().items()
        for other in others
        if (package := package_of(name)) != package_of(other) and package_of(other) not in packages()[package]
    }
    assert sorted(wrong) == []


def test_production_imports_nothing_of_the_lab() -> None:
    production = {package: others for package, others in packages().items() if not package.startswith("lab/")}
    assert [
        (package, other) for package, others in production.items() for other in others if other.startswith("lab/")
    ] == []


def test_every_package_that_the_table_names_for_another_is_imported_there() -> None:
    used = {(package_of(name), package_of(other)) for name, others in graph().items() for other in others}
    assert [
        (package, other) for package, others in packages().items() for other in others if (package, other) not in used
    ] == []
