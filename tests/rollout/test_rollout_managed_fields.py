"""Field managers as API servers record them. tests/cluster/test_drift.py tests a real server."""

import pytest

from rollout.managed_fields import managers


@pytest.mark.parametrize(
    ("manager", "operation", "subresource", "is_engine", "is_hand"),
    [
        ("helm", "Apply", "", True, False),
        ("helm", "Update", "", False, False),
        ("pulumi-kubernetes-1a2b3c4d", "Apply", "", True, False),
        ("pulumi-kubernetes", "Update", "", True, False),
        ("kubectl", "Apply", "", False, True),
        ("kubectl-edit", "Update", "", False, True),
        ("kubectl-edit", "Update", "status", False, False),
        ("kubectl-rollout", "Update", "", False, False),
        ("k9s", "Update", "", False, True),
        ("kube-controller-manager", "Update", "", False, False),
    ],
)
def test_engines_and_people_are_distinguished(
    manager: str, operation: str, subresource: str, is_engine: bool, is_hand: bool
) -> None:
    entry = {"manager": manager, "operation": operation, "subresource": subresource}
    (found,) = managers({"metadata": {"managedFields": [entry]}})
    assert (found.is_engine, found.is_hand) == (is_engine, is_hand)
