"""A server's identity in the cloud, by which its pods read object storage."""

from ..definition.servers import AwsIdentity, AzureIdentity, GcpIdentity, Identity


def annotations(identity: Identity | None) -> dict[str, str]:
    """Return the annotations of its ServiceAccount."""
    match identity:
        case AwsIdentity():
            return {"eks.amazonaws.com/role-arn": identity.role_arn}
        case GcpIdentity():
            return {"iam.gke.io/gcp-service-account": identity.service_account}
        case AzureIdentity():
            return {"azure.workload.identity/client-id": identity.client_id}
        case None:
            return {}


def pod_labels(identity: Identity | None) -> dict[str, str]:
    """Return the labels of its pods."""
    return {"azure.workload.identity/use": "true"} if isinstance(identity, AzureIdentity) else {}


def variables(identity: Identity | None) -> dict[str, str]:
    """Return the environment variables of its Tritons."""
    # Triton reads Azure with an account key unless it is told to use the pod's identity.
    return {"AZURE_STORAGE_AUTH_TYPE": "default"} if isinstance(identity, AzureIdentity) else {}
