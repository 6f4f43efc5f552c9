"""A server's identity in the cloud, by which its pods read object storage."""

from dataclasses import dataclass
from typing import Any, Literal

import pulumi_kubernetes as k8s

from .fields import Text
from .values import merged, of_kind, when


@dataclass(frozen=True, kw_only=True)
class AwsIdentityArgs:
    """An AWS role (IRSA)."""

    cloud: Literal["aws"] = "aws"
    """Amazon's."""
    role_arn: Text
    """ARN of the role that reads the repository."""


@dataclass(frozen=True, kw_only=True)
class GcpIdentityArgs:
    """A Google service account (GKE Workload Identity)."""

    cloud: Literal["gcp"] = "gcp"
    """Google's."""
    service_account: Text
    """E-mail of the service account that reads the repository."""


@dataclass(frozen=True, kw_only=True)
class AzureIdentityArgs:
    """An Azure managed identity (Azure Workload Identity)."""

    cloud: Literal["azure"] = "azure"
    """Microsoft's."""
    client_id: Text
    """Client id of the identity that reads the repository."""


IdentityArgs = AwsIdentityArgs | GcpIdentityArgs | AzureIdentityArgs


def account_annotations(identity: IdentityArgs | None) -> dict[str, Any] | None:
    """Return the annotations of the ServiceAccount."""
    return when(
        identity,
        lambda cloud: merged(
            of_kind(cloud, AwsIdentityArgs, lambda aws: {"eks.amazonaws.com/role-arn": aws.role_arn}),
            of_kind(cloud, GcpIdentityArgs, lambda gcp: {"iam.gke.io/gcp-service-account": gcp.service_account}),
            of_kind(cloud, AzureIdentityArgs, lambda azure: {"azure.workload.identity/client-id": azure.client_id}),
        ),
    )


def pod_labels(identity: IdentityArgs | None) -> dict[str, Any] | None:
    """Return the labels of the pods."""
    return of_kind(identity, AzureIdentityArgs, lambda _: {"azure.workload.identity/use": "true"})


def variables(identity: IdentityArgs | None) -> list[k8s.core.v1.EnvVarArgs] | None:
    """Return the environment variables of the Tritons."""
    # Triton reads Azure with an account key unless it is told to use the pod's identity.
    return of_kind(
        identity,
        AzureIdentityArgs,
        lambda _: [k8s.core.v1.EnvVarArgs(name="AZURE_STORAGE_AUTH_TYPE", value="default")],
    )
