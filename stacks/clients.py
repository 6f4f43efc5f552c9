"""`environments.json`, with which clients publish, promote and call models: pure functions without Pulumi's SDK."""

import hashlib
import json
import re

from tidegate_contracts import environments as facts
from tidegate_contracts import routing

from .definition import Environment
from .definition.base import byte_count
from .definition.datasets import (
    CsiDataset,
    Dataset,
    EfsDataset,
    HostPathDataset,
    NfsDataset,
    ObjectStoreRepository,
    mounted_part,
)
from .definition.models import Model
from .definition.placement import CpuPlacement
from .definition.pools import Pool, Preload
from .definition.proxy import HttpRouteExposure, IngressExposure
from .definition.servers import Server
from .devices import capacity_bytes, devices_per_replica, memory_bytes
from .stack import Definition, Stack

_RELEASE = re.compile(r"([0-9]{2}\.(?:0[1-9]|1[0-2]))(?![0-9])")
"""A release of Triton at the start of an image's tag: 26.08-py3."""


def environments(definition: Definition) -> facts.Environments:
    """Return all environments of a definition, each with its data planes in the order of a rollout."""
    found = definition.header.environments
    return facts.Environments(environments=tuple(_environment(definition, environment) for environment in found))


def environments_text(definition: Definition) -> str:
    """Return `environments.json`, without keys that are not set."""
    tree = environments(definition).model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def proxy_url(stack: Stack) -> str:
    """Return the address of a stack's proxy for clients. Behind an Ingress or a Gateway it is always https, because
    clients send credentials. Otherwise it is the Service, which only pods of the cluster can reach."""
    proxy = stack.platform.proxy
    if isinstance(proxy.exposure, IngressExposure | HttpRouteExposure):
        return f"https://{proxy.exposure.host}{proxy.exposure.path.rstrip('/')}"
    return proxy.service_url(stack.namespace)


def _environment(definition: Definition, environment: Environment) -> facts.Environment:
    canary, promotion = environment.rollout.canary, environment.promotion
    stacks = [stack for stack in definition.stacks if stack.environment.name == environment.name]
    # `definition.stacks` are in the order of their waves, and the canary is in the first wave.
    stacks.sort(key=lambda stack: canary is not None and stack.data_plane.name != canary)
    return facts.Environment(
        name=environment.name,
        formerly=environment.formerly or None,
        production=environment.production,
        promotion=facts.Promotion(**{**dict(promotion), "soak_hours": promotion.soak_hours or 0}),
        planes=tuple(_plane(stack) for stack in stacks),
    )


def _plane(stack: Stack) -> facts.Plane:
    return facts.Plane(
        name=stack.data_plane.name,
        formerly=stack.data_plane.formerly or None,
        wave=stack.data_plane.wave,
        proxy_url=proxy_url(stack),
        servers=tuple(_server(stack, server) for server in stack.platform.servers),
        models=tuple(_model(stack, model) for model in stack.platform.models),
    )


def _server(stack: Stack, server: Server) -> facts.ServerFacts:
    repository = server.repository
    location: facts.Location
    if isinstance(repository, ObjectStoreRepository):
        location, writers = facts.ObjectStoreLocation(url=repository.url), repository.writers
    else:
        dataset = stack.dataset(repository.dataset)
        writers = dataset.writers
        location = facts.DatasetLocation(
            dataset=dataset.name,
            path=repository.path or "",
            domino_dataset_id=dataset.domino.dataset_id if dataset.domino else None,
            volume=_volume(stack, dataset),
        )
    image = next(image for image in stack.platform.images if image.name == server.image)
    return facts.ServerFacts(
        name=server.name,
        kind=server.kind,
        location=location,
        writers=writers,
        release=found[1] if server.kind == "triton" and (found := _RELEASE.match(image.tag)) else None,
        backends=image.backends,
        pools=tuple(_pool(stack, pool) for pool in server.pools),
    )


def _pool(stack: Stack, pool: Pool) -> facts.PoolFacts:
    loading = pool.loading
    return facts.PoolFacts(
        name=pool.name,
        loading=loading.mode,
        gpu=not isinstance(pool.placement, CpuPlacement),
        gpus=devices_per_replica(pool.placement),
        memory_bytes=memory_bytes(pool, stack.data_plane.gpus),
        capacity_bytes=capacity_bytes(pool),
        poll_seconds=loading.poll_seconds if isinstance(loading, Preload) else None,
    )


def _model(stack: Stack, model: Model) -> facts.ModelFacts:
    server = next(server for server in stack.platform.servers if server.name == model.server)
    return facts.ModelFacts(
        name=model.name,
        server=model.server,
        pool=next(iter(model.pools(server.pools[0].name))),
        versions=tuple(routing.VersionShare(version=each.version, weight=each.weight) for each in model.versions),
        alias=model.alias,
        footprint_bytes=byte_count(model.footprint) if model.footprint else None,
        served_names=model.served_names or None,
    )


def _volume(stack: Stack, dataset: Dataset) -> str:
    """Return a name of the volume and the place of a dataset's root. One place can have two names, because drivers name
    volumes freely. Clients then publish to it twice, which is harmless. Two places never have the same name."""
    volume = ":".join(stack.volume(dataset))
    match dataset:
        case EfsDataset(access_point_id=str() as point):
            volume += f":{point}"
        case NfsDataset() | HostPathDataset():
            volume += f":{dataset.path}"
        case CsiDataset():
            attributes = json.dumps(dataset.volume_attributes, sort_keys=True).encode()
            volume += f"#{hashlib.sha256(attributes).hexdigest()[:12]}"
            volume += f"/{part}" if (part := mounted_part(dataset.mount_options)) else ""
    return f"{volume}/{dataset.domino.folder}" if dataset.domino else volume
