"""The namespace."""

from datetime import date

from components.environment import NamespaceArgs
from policies import guardrails

from ..definition.datasets import ClaimDataset, ObjectStoreRepository
from ..stack import Stack


def namespace(stack: Stack) -> NamespaceArgs:
    """Return the namespace, with what people and guardrails have to know of it."""
    return NamespaceArgs.model_construct(
        name=stack.namespace,
        labels=stack.environment.labels,
        annotations={
            **stack.environment.annotations,
            guardrails.ANNOTATION: guardrails.annotation(guardrail_settings(stack)),
        },
    )


def guardrail_settings(stack: Stack) -> guardrails.Settings:
    """Return what the guardrails have to know of an environment; it rides on the Namespace, beside the objects."""
    said = stack.platform.guardrails
    kind: guardrails.Kind = (
        "production" if stack.environment.production else "local" if stack.environment.local else "shared"
    )
    waivers = tuple(
        guardrails.Waiver(
            name=waiver.name,
            rule=waiver.rule,
            owner=waiver.owner,
            reason=waiver.reason,
            until=date.fromisoformat(waiver.until),
            object=waiver.object,
        )
        for waiver in sorted(said.waivers, key=lambda waiver: waiver.name)
    )
    return guardrails.Settings(kind, dict(said.severities), waivers, said.gpu_slices, tuple(_written(stack)))


def _written(stack: Stack) -> list[str]:
    """Return the claims and bucket addresses whose content somebody may write."""
    claims = [
        dataset.claim_name if isinstance(dataset, ClaimDataset) else dataset.name
        for dataset in stack.platform.datasets
        if dataset.writers
    ]
    repositories = (server.repository for server in stack.platform.servers)
    urls = [each.url.rstrip("/") for each in repositories if isinstance(each, ObjectStoreRepository) and each.writers]
    return sorted({*claims, *urls})
