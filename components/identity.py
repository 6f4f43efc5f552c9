"""A server's cloud identity, with which its pods read object storage."""

from typing import Any

from stacks.definition.servers import AwsIdentity, AzureIdentity, GcpIdentity, Identity

from .values import merged, of_kind, when

_ROLE = "eks.amazonaws.com/role-arn"


def account_annotations(identity: Identity | None) -> dict[str, Any] | None:
    """Return the annotations of the ServiceAccount. EKS Pod Identity needs none."""
    return when(
        identity,
        lambda cloud: merged(
            of_kind(cloud, AwsIdentity, lambda aws: when(aws.role_arn, lambda arn: {_ROLE: arn})),
            of_kind(cloud, GcpIdentity, lambda gcp: {"iam.gke.io/gcp-service-account": gcp.service_account}),
            of_kind(cloud, AzureIdentity, lambda azure: {"azure.workload.identity/client-id": azure.client_id}),
        ),
    )


def pod_labels(identity: Identity | None) -> dict[str, Any] | None:
    """Return the labels of the pods."""
    return of_kind(identity, AzureIdentity, lambda _: {"azure.workload.identity/use": "true"})
