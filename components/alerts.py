"""Alert and recording rules, as a PrometheusRule has them."""

from typing import Any

FAILED, REFUSED = ("50[0124567]", "2|4|13|15"), ("503", "14")
"""Calls that fail, and calls that are told to come again, by their statuses: HTTP's and gRPC's (docs/proxy-api.md)."""


def alert(
    name: str, expression: str, summary: str, *, lasting: str = "5m", severity: str = "warning"
) -> dict[str, Any]:
    """Return a rule: it fires once its expression has held for the time in `lasting`. The summary may use the series'
    labels and value, as templates of Prometheus do."""
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }


def record(name: str, expression: str) -> dict[str, Any]:
    """Return a rule that keeps an expression's values as a series of their own."""
    return {"record": name, "expr": expression}
