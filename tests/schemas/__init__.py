"""Validates Kubernetes objects offline, field by field: what a strict API server would refuse is a violation here.

- `check(objects)`: every object against its schema, in process, in milliseconds.
- `kubeconform(files)`: the same schemas through the real kubeconform, on files.
- `kubernetes_validate_strict(obj)`, `crd_violations(obj)`: one object of a built-in kind, of a custom kind.

A kind without a schema never passes silently: it is a violation, unless SCHEMALESS names it on purpose; then it stands
in the report's `skipped`. What no schema can say is not checked: CEL rules, defaults, immutability, admission.
"""

from tests.schemas.builtin import kubernetes_validate_strict
from tests.schemas.conform import kubeconform
from tests.schemas.custom import crd_violations
from tests.schemas.kinds import SCHEMALESS, NoSchemaError, Object, Report
from tests.schemas.together import check

__all__ = [
    "SCHEMALESS",
    "NoSchemaError",
    "Object",
    "Report",
    "check",
    "crd_violations",
    "kubeconform",
    "kubernetes_validate_strict",
]
