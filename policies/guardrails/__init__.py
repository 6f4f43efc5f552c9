"""Guardrails: what no stack may do. One set of rules over plain Kubernetes objects, used in three ways.

- in process, by `tidegate up`, `tidegate preview` and `tidegate guardrails`: `check`;
- as a Pulumi policy pack: `pulumi preview --policy-pack policies/guardrails`;
- as a page for people: docs/guardrails.md, written by `make docs`.

An environment's settings (its kind, severities, waivers) ride on its Namespace, as an annotation: they come with the
objects.
"""

from .checking import Finding, check
from .rules import BY_NAME, RULES
from .settings import ANNOTATION, Settings, Waiver, annotation

__all__ = ["ANNOTATION", "BY_NAME", "RULES", "Finding", "Settings", "Waiver", "annotation", "check"]
