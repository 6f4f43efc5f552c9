"""How NVIDIA Dynamo's frontends and workers find each other through Kubernetes, in version 1.4.

A worker describes its models in an object of kind DynamoWorkerMetadata with its pod's name. A frontend reads these
objects, and the readiness of pods from EndpointSlices with two labels (`lib/runtime/src/discovery/kube` of Dynamo).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .kubernetes_token import token_volume

CRD: Final = "dynamoworkermetadatas.nvidia.com"
"""The CustomResourceDefinition of these objects, which NVIDIA's chart installs."""
CRD_SPEC: Final[Mapping[str, Any]] = {
    "group": "nvidia.com",
    "scope": "Namespaced",
    "names": {"kind": "DynamoWorkerMetadata", "plural": "dynamoworkermetadatas"},
    "versions": [
        {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    ],
}
"""A minimal specification that accepts whatever workers write, for clusters without NVIDIA's chart."""

RULES: Final[Sequence[Mapping[str, Any]]] = (
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["nvidia.com"],
        "resources": ["dynamoworkermetadatas"],
        "verbs": ["list", "watch", "create", "patch"],
    },
)
"""Rules of the Role of a server's frontends and workers in their namespace. All are necessary."""

MESSAGES: Final = {"DYN_TCP_MAX_MESSAGE_SIZE": f"{96 << 20}"}
"""The largest message between frontends and workers. A request doubles on its way to a worker, so the default of 32 MiB
is too small for bodies of 16 MiB. A frontend drops a worker that such a request did not reach."""

SERVICE_LABELS: Final = {
    "nvidia.com/dynamo-discovery-backend": "kubernetes",
    "nvidia.com/dynamo-discovery-enabled": "true",
}
"""Labels of the workers' Services, which Kubernetes copies to their EndpointSlices."""

TOKEN: Final = token_volume("kube-api-access")
"""The volume with the pod's token, as Kubernetes itself would mount it into every container of the pod."""
TOKEN_ROOT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

SYSTEM_PORT: Final = 9090
"""A worker's port for probes, metrics, and data about its model for frontends, such as the tokenizer."""
RESPONSE_PORT: Final = 9091
"""A frontend's port, to which workers send their responses."""
FRONTEND: Final = "dynamo.frontend"
"""The Python module of a frontend."""
MODULES: Final = (FRONTEND, "dynamo.vllm", "dynamo.sglang", "dynamo.trtllm", "dynamo.mocker")
"""All modules of frontends and workers."""
