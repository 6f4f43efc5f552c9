"""Guardrails: rules over plain Kubernetes objects that every stack must keep. There are three uses.

- `tidegate up`, `tidegate preview` and `tidegate guardrails` call `check`.
- Pulumi runs them as a policy pack: `pulumi preview --policy-pack policies/guardrails`.
- `make docs` writes docs/guardrails.md.

The settings of an environment (kind, severities, waivers) are an annotation of its Namespace.
"""

from .checking import Finding, check
from .rules import BY_NAME, RULES
from .settings import ANNOTATION, Settings, Waiver, annotation

__all__ = ["ANNOTATION", "BY_NAME", "RULES", "Finding", "Settings", "Waiver", "annotation", "check"]
