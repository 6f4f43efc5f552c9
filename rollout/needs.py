"""What a stack's objects need that somebody else makes, read from the objects: what the chart's notes name too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_contracts import dynamo

from policies.guardrails.objects import at, mapping, mappings, text
from stacks.problems import escaped

from .changes.workloads import Tree, Workload, workloads
from .kubectl import KubernetesObject

_REMEDIES: Mapping[str, str] = {
    "Secret": "Make it (kubectl create secret …), or have what keeps your secrets bring it.",
    "ConfigMap": "Make it (kubectl create configmap …).",
    "PersistentVolumeClaim": "Make the claim, or name one that is there under datasets.",
    "PriorityClass": "Have it made, or name another (priorityClass).",
    "RuntimeClass": "Have it made, or name another.",
    "StorageClass": "Make it, or name another (storageClass, or storageClasses of the data plane).",
    "CSIDriver": "Install the driver.",
    "IngressClass": "Install the ingress controller, or name its class (proxy.exposure.className).",
    "Gateway": "Make it, or name another (proxy.exposure.gateway).",
    "Issuer": "Make it with cert-manager, or name another (proxy.tls).",
    "ClusterIssuer": "Make it with cert-manager, or name another (proxy.tls).",
    "DeviceClass": "Install NVIDIA's driver for Dynamic Resource Allocation, or name another class (placement).",
    "APIService": "Install a metrics server, or scale by the queue instead.",
    "CustomResourceDefinition": "Install Dynamo's, of NVIDIA's chart, or leave openai.frontends out.",
}
"""What to do where an object of this kind is missing."""


@dataclass(frozen=True)
class Prerequisite:
    """An object that must be there, and what is so without it; `hard` where a pod then never starts."""

    version: str
    kind: str
    name: str
    namespace: str
    without: str
    hard: bool = True

    @property
    def do(self) -> str:
        """What to do where it is missing."""
        return _REMEDIES[self.kind]

    @property
    def stub(self) -> KubernetesObject:
        """As much of the object as finds it."""
        where = {"namespace": self.namespace} if self.namespace else {}
        return {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": self.name, **where}}


@dataclass(frozen=True)
class MissingPrerequisite:
    """Something that a cluster lacks, the command that shows it, and what to do."""

    what: str
    command: str
    do: str
    hard: bool = False

    def __str__(self) -> str:
        """The first line says what; indented lines say what to do, and how to see it."""
        level = "" if self.hard else "advisory: "
        return "\n".join(map(escaped, (f"{level}{self.what}", f"    {self.do}", f"    To see it: {self.command}")))


def needs_of(objects: Sequence[Tree]) -> list[Prerequisite]:
    """Return what these objects need and do not bring, each once; the hard needs count where one is both."""
    made = {(text(item, "kind"), text(item, "metadata", "name")) for item in objects}
    made.add(("ConfigMap", "kube-root-ca.crt"))  # Kubernetes makes it in every namespace.
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
        binds = f"{named} names it, and binds all the same"
        yield Prerequisite("storage.k8s.io/v1", "StorageClass", text(spec, "storageClassName"), "", binds, hard=False)
    elif kind == "Ingress":
        nobody = "nobody reaches the proxy through the Ingress"
        yield Prerequisite(version, "IngressClass", text(spec, "ingressClassName"), "", nobody, hard=False)
    elif kind == "HTTPRoute":
        for parent in mappings(spec, "parentRefs"):
            nobody = "nobody reaches the proxy through it"
            yield Prerequisite(version, "Gateway", text(parent, "name"), text(parent, "namespace"), nobody, hard=False)
    elif kind == "Certificate":
        issuer = text(spec, "issuerRef", "kind")
        where = namespace if issuer == "Issuer" else ""
        yield Prerequisite(
            version, issuer, text(spec, "issuerRef", "name"), where, f"{named} is never issued to the pods"
        )
    elif kind == "ResourceClaimTemplate":
        for request in mappings(spec, "spec", "devices", "requests"):
            name = text(request, "exactly", "deviceClassName")
            yield Prerequisite(version, "DeviceClass", name, "", "pods that claim a device of it wait for ever")
    elif kind == "Role" and dynamo.RULES[-1] in mappings(item, "rules"):
        alone = f"workers end at once, for the objects that {named} lets them write are of no kind"
        yield Prerequisite("apiextensions.k8s.io/v1", "CustomResourceDefinition", dynamo.CRD, "", alone)
    elif kind == "HorizontalPodAutoscaler":
        stays = "autoscalers see no CPU use, and change nothing"
        yield Prerequisite("apiregistration.k8s.io/v1", "APIService", "v1beta1.metrics.k8s.io", "", stays, hard=False)


def _of_pods(objects: Sequence[Tree]) -> Iterator[Prerequisite]:
    for workload in workloads(objects).values():
        never = f"no pod of {workload.name} is made"
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
    """Yield kind and name of what a pod cannot start without."""
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
