"""What the validators share: objects and their names, reports, and the kinds that have no schema."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

Object = Mapping[str, Any]

# The place to say "no schema", on purpose and with the reason. Everything else must have one.
SCHEMALESS: Mapping[tuple[str, str], str] = {
    ("apps.dominodatalab.com/v1alpha1", "Mutation"): "Domino publishes its CRD in no package"
}


class NoSchemaError(LookupError):
    """There is no schema for a kind."""


@dataclass(frozen=True)
class Report:
    """What became of a set of objects: `skipped` ones have no schema, and nothing is known about them."""

    checked: int
    violations: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing violates its schema."""
        return self.checked > 0 and not self.violations


def gvk(obj: Object) -> tuple[str, str]:
    """Return an object's apiVersion and kind, empty where it has none."""
    return str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")


def title(obj: Object) -> str:
    """Return how to call an object in a message: 'Deployment dev/proxy'."""
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{obj.get('kind') or 'object without a kind'} {name or '(no name)'}"


def complaints(obj: Object, validator: Draft202012Validator) -> list[str]:
    """Return one line for everything that a schema finds wrong with an object."""
    errors = sorted(validator.iter_errors(obj), key=lambda error: [str(step) for step in error.absolute_path])
    return [f"{title(obj)}: {_where(error.absolute_path)}: {error.message[:400]}" for error in errors]


def _where(steps: Iterable[object]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "object"
