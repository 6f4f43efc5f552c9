"""Every object against the schema it has, built-in or custom."""

from collections.abc import Iterable

from tests.schemas import builtin, custom
from tests.schemas.kinds import SCHEMALESS, Object, Report, complaints, gvk, title


def check(objects: Iterable[Object]) -> Report:
    """Validate objects in process; a kind without a schema is a violation unless SCHEMALESS names it."""
    checked, violations, skipped = 0, list[str](), list[str]()
    for obj in objects:
        if gvk(obj) in SCHEMALESS:
            skipped.append(f"{title(obj)}: no schema: {SCHEMALESS[gvk(obj)]}")
            continue
        checked += 1
        validator = custom.validator(*gvk(obj)) or builtin.validator(*gvk(obj))
        violations += complaints(obj, validator) if validator else [f"{title(obj)}: no schema for {' '.join(gvk(obj))}"]
    return Report(checked, tuple(violations), tuple(skipped))
