"""The files that `make docs` generates: the pages of the definition, guardrails and metrics, and the schema."""

from collections.abc import Mapping
from pathlib import Path

from .guardrails import page as guardrails_page
from .page import page
from .schema import definition_schema, schema_text
from .telemetry import page as metrics_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs/definition.md")
SCHEMA = Path("docs/definition.schema.json")
GUARDRAILS = Path("docs/guardrails.md")
METRICS = Path("docs/metrics.md")

__all__ = ["definition_schema", "page", "schema_text"]


def files() -> Mapping[Path, str]:
    """Return the texts of the generated files by their paths in the repository."""
    return {PAGE: page(), SCHEMA: schema_text(), GUARDRAILS: guardrails_page(), METRICS: metrics_page()}


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the current texts of the generated files that are missing or outdated."""
    found = files().items()
    return {
        path: text for path, text in found if not (root / path).exists() or (root / path).read_text("utf-8") != text
    }


def write(root: Path = ROOT) -> list[Path]:
    """Write the generated files, and return those that changed."""
    changed = stale(root)
    for path, text in changed.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return list(changed)
