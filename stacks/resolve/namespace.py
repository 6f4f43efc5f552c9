"""The namespace and its service accounts."""

from components import NamespaceArgs, PullSecretArgs, ServiceAccountArgs

from ..definition.servers import AwsIdentity, AzureIdentity, GcpIdentity, Identity
from ..stack import Stack
from . import names

AZURE_USE = {"azure.workload.identity/use": "true"}


def namespace(stack: Stack) -> NamespaceArgs:
    """Return the namespace: Pod Security "restricted" is enforced in it."""
    pod_security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    domino = {"domino-compute": "true"} if stack.platform.domino else {}
    return NamespaceArgs(
        name=stack.namespace,
        labels={**stack.environment.labels, **domino, **names.labels(stack, "tidegate"), **pod_security},
        annotations=stack.environment.annotations or None,
    )


def service_accounts(stack: Stack) -> list[ServiceAccountArgs]:
    """Return one account for the proxy and one for each server, so that each has only its own cloud identity."""
    pull_secrets = [PullSecretArgs(name=secret.name) for secret in stack.platform.pull_secrets]
    accounts: list[tuple[str, names.Labels, Identity | None]]
    accounts = [(names.PROXY, names.labels(stack, names.PROXY), None)]
    accounts += [
        (names.service_account(server), names.labels(stack, server.kind), server.identity)
        for server in stack.platform.servers
    ]
    return [
        ServiceAccountArgs(
            name=name,
            labels=labels,
            annotations=_annotations(identity) if identity else None,
            pull_secrets=pull_secrets,
        )
        for name, labels, identity in accounts
    ]


def _annotations(identity: Identity) -> dict[str, str]:
    match identity:
        case AwsIdentity():
            return {"eks.amazonaws.com/role-arn": identity.role_arn}
        case GcpIdentity():
            return {"iam.gke.io/gcp-service-account": identity.service_account}
        case AzureIdentity():
            return {"azure.workload.identity/client-id": identity.client_id}
