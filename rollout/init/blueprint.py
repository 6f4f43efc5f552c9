"""Says the values of the Domino blueprint's chart, `triton-based-inference`, in the words of a definition.

What Tidegate does in another way, and what that chart never had, is returned beside them, each with its place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tidegate_contracts.environments import is_alias

from charts.values_file import scalar
from stacks.definition import Namespace
from stacks.definition.base import ByteQuantity, DnsLabel, ObjectName, ServiceLabel, Without, form
from stacks.definition.images import REPOSITORY
from stacks.definition.triton import OLDEST_TRITON
from stacks.load import Document
from stacks.problems import DefinitionError, Problem, escaped
from stacks.schema_errors import problems_from

TRITON = "26.08-py3"
"""The tag that replaces one older than `OLDEST_TRITON`."""

_IMAGE = form(
    f"^{REPOSITORY}:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}$", "an image with its tag, such as tritonserver:26.08-py3"
)
_FILE_SYSTEM = form(r"^fs-[0-9a-f]+(::fsap-[0-9a-f]+)?$", "fs-0123456789abcdef0, or fs-…::fsap-… with an access point")
_WHOLE = "Give it all values of the release, the chart's own too: helm get values <release> --all -o yaml"


@dataclass(frozen=True)
class Slot:
    """What one replica of a server runs on, in YAML, and what models may take there, where that must be said."""

    placement: str
    capacity: str = ""


class _Part(BaseModel):
    """A part of the values: the keys that a definition has too."""

    model_config = ConfigDict(extra="ignore", strict=True, alias_generator=str)


class _Env(_Part):
    namespace: Namespace
    compute_namespace: DnsLabel = "domino-compute"


class _Proxy(_Part):
    replicas: Annotated[int, Field(ge=1, le=1000)] = 1


class _Server(_Part):
    name: ServiceLabel
    image: Annotated[str, _IMAGE, Without(":latest$", "moves with every push: name a version")]
    dataset_id: Annotated[str, form(r"^[A-Za-z0-9-]+$", "the id in the dataset's URL")]


class _Preloaded(_Server):
    type: Literal["PreloadedTritonInferenceServerProxy"]


class _OnDemand(_Server):
    type: Literal["OnDemandTritonInferenceServerProxy"]


class _Istio(_Part):
    enabled: bool = False


class _Persistence(_Part):
    efsFSID: Annotated[str, _FILE_SYSTEM]
    storageClass: ObjectName | None = None
    size: ByteQuantity = "100Gi"


class _Values(_Part):
    env: _Env
    triton_inference_server_1: _Preloaded
    triton_inference_server_2: _OnDemand
    persistence: _Persistence
    proxy: _Proxy = _Proxy()
    istio: _Istio = _Istio()


_ISSUER = "the issuer of the proxy's certificate decides it"
_LEFT: Mapping[tuple[str, ...], str] = {
    ("env", "name"): "callers find the proxy at https://inference-proxy.{namespace}.svc, not at {name}-proxy-service",
    ("proxy", "image"): "the proxy is Tidegate's own: build it from proxy/Dockerfile, and name its image under images",
    ("certmanager", "duration"): _ISSUER,
    ("certmanager", "renewBefore"): _ISSUER,
    ("persistence", "useEFS"): "the blueprint's chart never read it",
    ("persistence", "accessMode"): "a volume of EFS is ReadWriteMany; servers mount it read-only",
}
_SAME = (("persistence", "accessMode"), "ReadWriteMany")  # As it is here anyway.
_UNKNOWN = "the blueprint's chart has no such value"


_PRODUCTION = """
    production: true # as its name says: it is held to more, and taken down only with --yes
    guardrails:
      severities: # remove this once `tidegate pin` has written images.lock: a cluster takes no image without a digest
        images-are-pinned-by-digest: advisory"""
_CALLERS = {False: 'name: everybody-in-domino, principals: ["*"]', True: "name: endpoints, principals: [some-endpoint]"}
"""Who may call, outside of production and there, where nobody is granted everything."""


def read_values(document: Document, slot: Slot) -> tuple[dict[str, str], list[Problem]]:
    """Return parts of a definition, in YAML, and which values could not be carried over.

    Raises DefinitionError where a value is wrong, missing or not filled in.
    """
    try:
        values = _Values.model_validate(document.tree)
    except ValidationError as error:
        problems = problems_from(error, document, _Values)
        whole = [Problem(document.file, "", "these are not all values of the blueprint's chart", do=_WHOLE)]
        raise DefinitionError(problems + whole * any(each.what.endswith("is missing") for each in problems)) from None
    names = {"namespace": values.env.namespace, "name": escaped(str(document.get(("env", "name"))))}
    carried = {(part, key) for part, held in values for key in type(held).model_fields}
    left = [
        document.problem(path, _LEFT.get(path, _UNKNOWN).format(**names))
        for path in _leaves(document.tree)
        if path not in carried and (path, document.get(path)) != _SAME
    ]
    servers = {("triton_inference_server_1", "image"): values.triton_inference_server_1.image}
    servers[("triton_inference_server_2", "image")] = values.triton_inference_server_2.image
    for path, image in servers.items():
        if _current(image) != image:
            why = f"older than {OLDEST_TRITON}: a cancelled gRPC call can crash it"
            left.append(document.problem(path, f"{why}: {TRITON} takes its place"))
    return {"values": escaped(Path(document.file).name), **_parts(values, slot)}, left


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, dict):  # an empty one says nothing
        for key, value in tree.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path


def _current(image: str) -> str:
    """Return an image of Triton, a newer one where it is too old to be held to what the proxy asks of it."""
    repository, _, tag = image.rpartition(":")
    version = re.match(r"\d\d\.\d\d", tag)
    return f"{repository}:{TRITON}" if version and version[0] < OLDEST_TRITON else image


def _parts(values: _Values, slot: Slot) -> dict[str, str]:
    one, two, stored = values.triton_inference_server_1, values.triton_inference_server_2, values.persistence
    images = _numbered("triton", [_current(one.image), _current(two.image)])
    datasets = _numbered("models", [one.dataset_id, two.dataset_id])
    file_system, _, access_point = stored.efsFSID.partition("::")
    volume = {
        "kind": "efs",
        "fileSystemId": file_system,
        "accessPointId": access_point,
        "capacity": stored.size,
        "storageClass": scalar(stored.storageClass) if stored.storageClass else "",
    }
    lines = "".join(f"\n    {key}: {value}" for key, value in volume.items() if value)
    on_demand = "mode: on-demand, idleSeconds: 300" + (f", capacity: {slot.capacity}" if slot.capacity else "")
    namespace = values.env.namespace
    names = (namespace.rpartition("-")[2], namespace, f"env-{namespace}")
    environment = next(name for name in names if is_alias(name))
    production = environment in ("prod", "production")
    return {
        "images": "\n".join(_image(name, image) for image, name in images.items()),
        "datasets": "\n".join(
            f"  - name: {name}{lines}\n    domino: {{datasetId: {scalar(found)}}}" for found, name in datasets.items()
        ),
        "servers": "\n".join(
            f"  - name: {scalar(server.name)}\n    kind: triton\n    image: {images[_current(server.image)]}\n"
            f"    repository: {{dataset: {datasets[server.dataset_id]}, path: models/{path}}}\n"
            f"    pools:\n      - name: main\n        loading: {loading}\n        placement: {slot.placement}\n"
            '        replicas: 1\n        resources: {cpu: "1", memory: 4Gi} # as the blueprint\'s templates had it'
            for server, path, loading in (
                (one, "pre-load", "{mode: preload}"),
                (two, "ondemand-load", f"{{{on_demand}}}"),
            )
        ),
        "replicas": str(values.proxy.replicas),
        "compute": scalar(values.env.compute_namespace),
        "mesh": "\nmesh: {mode: istio}" * values.istio.enabled,
        "environment": scalar(environment),
        "production": _PRODUCTION if production else " # ← add `production: true` where it is: it is held to more then",
        "callers": _CALLERS[production],
        "names": f"{scalar(one.name)}, {scalar(two.name)}",
        "namespace": scalar(namespace),
    }


def _numbered(name: str, wanted: Sequence[str]) -> dict[str, str]:
    """Return a name for each of these texts: the first has it as it is."""
    return {text: f"{name}-{number}" if number else name for number, text in enumerate(dict.fromkeys(wanted))}


def _image(name: str, image: str) -> str:
    repository, _, tag = image.rpartition(":")
    return f'  - name: {name}\n    repository: {scalar(repository)}\n    tag: "{tag}"'
