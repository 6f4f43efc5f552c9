"""The reference of the definition, made from the typed model alone: a page for people, a JSON schema for editors."""

from collections.abc import Mapping
from pathlib import Path

from .page import page
from .schema import definition_schema, schema_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Path("stacks/inference.yaml")
PAGE = Path("docs/definition.md")
SCHEMA = Path("docs/definition.schema.json")

__all__ = ["PAGE", "ROOT", "SCHEMA", "definition_schema", "files", "page", "stale", "write"]


def files(root: Path = ROOT) -> Mapping[Path, str]:
    """Return what the generated files must say, by their paths below `root`."""
    return {PAGE: page(root / EXAMPLE), SCHEMA: schema_text()}


def stale(root: Path = ROOT) -> list[Path]:
    """Return the generated files that say something else than the model, or are not there."""
    return [path for path, text in files(root).items() if _text(root / path) != text]


def write(root: Path = ROOT) -> list[Path]:
    """Write the generated files; return those that changed."""
    changed = stale(root)
    wanted = files(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
    return changed


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
