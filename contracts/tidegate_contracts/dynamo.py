"""How NVIDIA Dynamo's frontends and workers find each other through Kubernetes, as its version 1.4 does.

A worker writes what it serves into an object of the kind DynamoWorkerMetadata that has its pod's name; a frontend looks
at these, and at which pods are ready in EndpointSlices with two labels: `lib/runtime/src/discovery/kube` of Dynamo.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .kubernetes_token import token_volume

CRD: Final = "dynamoworkermetadatas.nvidia.com"
"""The CustomResourceDefinition of what workers write; NVIDIA's chart brings it."""
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
"""As much of it as takes whatever workers write: for where no chart brings it."""

RULES: Final[Sequence[Mapping[str, Any]]] = (
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["nvidia.com"],
        "resources": ["dynamoworkermetadatas"],
        "verbs": ["list", "watch", "create", "patch"],
    },
)
"""What the Role of a server's frontends and workers grants, in their namespace. None of it can be left out."""

MESSAGES: Final = {"DYN_TCP_MAX_MESSAGE_SIZE": f"{96 << 20}"}
"""What frontends and workers may send each other. A request doubles on its way to a worker, so the default of 32 MiB is
too small for bodies of 16 MiB. A frontend drops the worker that such a request did not reach."""

SERVICE_LABELS: Final = {
    "nvidia.com/dynamo-discovery-backend": "kubernetes",
    "nvidia.com/dynamo-discovery-enabled": "true",
}
"""Labels of the Services of workers: Kubernetes gives them to their EndpointSlices."""

TOKEN: Final = token_volume("kube-api-access")
"""The volume with the pod's token, as Kubernetes itself would mount it into every container of the pod."""
TOKEN_ROOT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

SYSTEM_PORT: Final = 9090
"""Of a worker: probes, metrics, and what frontends want to know of its model, such as the tokenizer."""
RESPONSE_PORT: Final = 9091
"""Of a frontend: to it workers bring their answers."""
FRONTEND: Final = "dynamo.frontend"
"""Python module that is a frontend."""
MODULES: Final = (FRONTEND, "dynamo.vllm", "dynamo.sglang", "dynamo.trtllm", "dynamo.mocker")
"""All that frontends and workers run."""
