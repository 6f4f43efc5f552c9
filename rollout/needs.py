"""The prerequisites of a stack: objects that it needs but others must create. The chart's notes list the same ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_contracts import dynamo

from policies.guardrails.objects import at, mapping, mappings, text
from stacks.problems import escaped

from .changes.workloads import Tree, Workload, workloads
from .kubectl import KubernetesObject

_REMEDIES: Mapping[str, str] = {
    "Secret": "Create it (kubectl create secret …), or let your secret manager create it.",
    "ConfigMap": "Create it (kubectl create configmap …).",
    "PersistentVolumeClaim": "Create the claim, or set an existing one under datasets.",
    "PriorityClass": "Create it, or set another one (priorityClass).",
    "RuntimeClass": "Create it, or set another one.",
    "StorageClass": "Create it, or set another one (storageClass, or storageClasses of the data plane).",
    "CSIDriver": "Install the driver.",
    "IngressClass": "Install the ingress controller, or set its class (proxy.exposure.className).",
    "Gateway": "Create it, or set another one (proxy.exposure.gateway).",
    "Issuer": "Create it with cert-manager, or set another one (proxy.tls).",
    "ClusterIssuer": "Create it with cert-manager, or set another one (proxy.tls).",
    "DeviceClass": "Install NVIDIA's driver for Dynamic Resource Allocation, or set another class (placement).",
    "APIService": "Install a metrics server, or scale by the queue instead.",
    "CustomResourceDefinition": "Install Dynamo's from NVIDIA's chart, or remove openai.frontends.",
}
"""The remedy if an object of this kind is missing."""


@dataclass(frozen=True)
class Prerequisite:
    """An object that must exist, and the consequence if it does not. If it is `hard`, a pod never starts without it."""

    version: str
    kind: str
    name: str
    namespace: str
    without: str
    hard: bool = True

    @property
    def do(self) -> str:
        return _REMEDIES[self.kind]

    @property
    def stub(self) -> KubernetesObject:
        where = {"namespace": self.namespace} if self.namespace else {}
        return {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": self.name, **where}}


@dataclass(frozen=True)
class MissingPrerequisite:
    """Something that a cluster lacks, the command that shows it, and the remedy."""

    what: str
    command: str
    do: str
    hard: bool = False

    def __str__(self) -> str:
        """The first line names it. Indented lines have the remedy and the command."""
        level = "" if self.hard else "advisory: "
        return "\n".join(map(escaped, (f"{level}{self.what}", f"    {self.do}", f"    To check: {self.command}")))


def needs_of(objects: Sequence[Tree]) -> list[Prerequisite]:
    """Return the needs of these objects that they do not meet themselves, each once. A hard need takes precedence."""
    made = {(text(item, "kind"), text(item, "metadata", "name")) for item in objects}
    made.add(("ConfigMap", "kube-root-ca.crt"))  # Kubernetes creates it in every namespace.
    made |= {("Secret", text(item, "spec", "secretName")) for item in objects if item["kind"] == "Certificate"}
    found: dict[tuple[str, str, str], Prerequisite] = {}
    for need in (*_of_pods(objects), *(need for item in objects for need in _of_object(item))):
        if need.name and (need.kind, need.name) not in made:
            found.setdefault((need.kind, need.namespace, need.name), need)
    return [*found.values()]


def _of_object(item: Tree) -> Iterator[Prerequisite]:
    kind, version, namespace = text(item, "kind"), text(item, "apiVersion"), text(item, "metadata", "namespace")
    spec, named = mapping(item, "spec"), f"{kind} {text(item, 'metadata', 'name')}"
    for secret in mappings(item, "imagePullSecrets"):
        yield Prerequisite("v1", "Secret", text(secret, "name"), namespace, "images are pulled without it", hard=False)
    if kind == "PersistentVolume":
        mounted = f"no pod can mount {named}"
        yield Prerequisite("storage.k8s.io/v1", "CSIDriver", text(spec, "csi", "driver"), "", mounted)
        secret = mapping(spec, "csi", "nodePublishSecretRef")
        yield Prerequisite("v1", "Secret", text(secret, "name"), text(secret, "namespace"), mounted)
        binds = f"{named} names it, but binds without it"
        yield Prerequisite("storage.k8s.io/v1", "StorageClass", text(spec, "storageClassName"), "", binds, hard=False)
    elif kind == "Ingress":
        unreachable = "callers cannot reach the proxy through the Ingress"
        yield Prerequisite(version, "IngressClass", text(spec, "ingressClassName"), "", unreachable, hard=False)
    elif kind == "HTTPRoute":
        for parent in mappings(spec, "parentRefs"):
            name, where = text(parent, "name"), text(parent, "namespace")
            unreachable = "callers cannot reach the proxy through it"
            yield Prerequisite(version, "Gateway", name, where, unreachable, hard=False)
    elif kind == "Certificate":
        issuer = text(spec, "issuerRef", "kind")
        where = namespace if issuer == "Issuer" else ""
        yield Prerequisite(
            version, issuer, text(spec, "issuerRef", "name"), where, f"the pods never get the certificate {named}"
        )
    elif kind == "ResourceClaimTemplate":
        for request in mappings(spec, "spec", "devices", "requests"):
            name = text(request, "exactly", "deviceClassName")
            yield Prerequisite(version, "DeviceClass", name, "", "pods that claim such a device wait forever")
    elif kind == "Role" and dynamo.RULES[-1] in mappings(item, "rules"):
        alone = f"workers exit immediately, because they cannot write the objects of {named}"
        yield Prerequisite("apiextensions.k8s.io/v1", "CustomResourceDefinition", dynamo.CRD, "", alone)
    elif kind == "HorizontalPodAutoscaler":
        stays = "autoscalers see no CPU use, and scale nothing"
        yield Prerequisite("apiregistration.k8s.io/v1", "APIService", "v1beta1.metrics.k8s.io", "", stays, hard=False)


def _of_pods(objects: Sequence[Tree]) -> Iterator[Prerequisite]:
    for workload in workloads(objects).values():
        never = f"no pod of {workload.name} is created"
        priority, runtime = text(workload.pod, "priorityClassName"), text(workload.pod, "runtimeClassName")
        yield Prerequisite("scheduling.k8s.io/v1", "PriorityClass", priority, "", never)
        yield Prerequisite("node.k8s.io/v1", "RuntimeClass", runtime, "", never)
        waits = f"pods of {workload.name} wait for it"
        for volume in mappings(workload.pod, "volumes"):
            storage = text(volume, "ephemeral", "volumeClaimTemplate", "spec", "storageClassName")
            yield Prerequisite("storage.k8s.io/v1", "StorageClass", storage, "", waits)
        for kind, name in _read(workload):
            yield Prerequisite("v1", kind, name, workload.namespace, waits)


def _read(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each object that a pod needs to start."""
    volumes = mappings(workload.pod, "volumes")
    sources: list[Any] = [*volumes, *(each for one in volumes for each in mappings(one, "projected", "sources"))]
    for container in workload.containers:
        sources += [*mappings(container, "envFrom"), *(at(one, "valueFrom") for one in mappings(container, "env"))]
    for source in sources:
        for key in ("secret", "secretRef", "secretKeyRef", "configMap", "configMapRef", "configMapKeyRef"):
            if not at(source, key, "optional"):
                kind = "Secret" if key.startswith("secret") else "ConfigMap"
                yield kind, text(source, key, "secretName") or text(source, key, "name")
        yield "PersistentVolumeClaim", text(source, "persistentVolumeClaim", "claimName")
