"""Alert rules, as a PrometheusRule has them."""

from typing import Any


def alert(name: str, expression: str, *, lasting: str, severity: str, summary: str) -> dict[str, Any]:
    """Return a rule: it fires once its expression has held for the time in `lasting`."""
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }
