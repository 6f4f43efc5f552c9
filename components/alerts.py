"""Alert rules, as a PrometheusRule has them."""

from typing import Any


def alert(
    name: str, expression: str, summary: str, *, lasting: str = "5m", severity: str = "warning"
) -> dict[str, Any]:
    """Return a rule: it fires once its expression has held for the time in `lasting`."""
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }
