"""What clients are told of a definition: `environments.json`, by which they publish, promote and call models.

Pure, and without Pulumi's SDK: the same definition gives the same environments.
"""

import hashlib
import json
import re

from tidegate_contracts import environments as told
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
"""A release of Triton at the beginning of an image's tag: 26.08-py3."""


def environments(definition: Definition) -> told.Environments:
    """Return all environments of a definition, each with its data planes in the order of a rollout."""
    found = definition.header.environments
    return told.Environments(environments=tuple(_environment(definition, environment) for environment in found))


def environments_text(definition: Definition) -> str:
    """Return `environments.json`; what is not said is not in it."""
    said = environments(definition).model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(said, indent=2, ensure_ascii=False) + "\n"


def proxy_url(stack: Stack) -> str:
    """Return the address at which clients reach the proxy of a stack.

    Behind an Ingress or a Gateway it is always https, since what is sent there are credentials; otherwise it is the
    Service, which only the cluster's own pods reach.
    """
    proxy = stack.platform.proxy
    if isinstance(proxy.exposure, IngressExposure | HttpRouteExposure):
        return f"https://{proxy.exposure.host}{proxy.exposure.path.rstrip('/')}"
    return proxy.service_url(stack.namespace)


def _environment(definition: Definition, environment: Environment) -> told.Environment:
    canary, promotion = environment.rollout.canary, environment.promotion
    stacks = [stack for stack in definition.stacks if stack.environment.name == environment.name]
    # `definition.stacks` are in the order of their waves; the canary is of the first one.
    stacks.sort(key=lambda stack: canary is not None and stack.data_plane.name != canary)
    return told.Environment(
        name=environment.name,
        formerly=environment.formerly or None,
        production=environment.production,
        promotion=told.Promotion(**{**dict(promotion), "soak_hours": promotion.soak_hours or 0}),
        planes=tuple(_plane(stack) for stack in stacks),
    )


def _plane(stack: Stack) -> told.Plane:
    return told.Plane(
        name=stack.data_plane.name,
        formerly=stack.data_plane.formerly or None,
        wave=stack.data_plane.wave,
        proxy_url=proxy_url(stack),
        servers=tuple(_server(stack, server) for server in stack.platform.servers),
        models=tuple(_model(stack, model) for model in stack.platform.models),
    )


def _server(stack: Stack, server: Server) -> told.ServerFacts:
    repository = server.repository
    location: told.Location
    if isinstance(repository, ObjectStoreRepository):
        location, writers = told.ObjectStoreLocation(url=repository.url), repository.writers
    else:
        dataset = stack.dataset(repository.dataset)
        writers = dataset.writers
        location = told.DatasetLocation(
            dataset=dataset.name,
            path=repository.path or "",
            domino_dataset_id=dataset.domino.dataset_id if dataset.domino else None,
            volume=_volume(stack, dataset),
        )
    image = next(image for image in stack.platform.images if image.name == server.image)
    return told.ServerFacts(
        name=server.name,
        kind=server.kind,
        location=location,
        writers=writers,
        release=found[1] if server.kind == "triton" and (found := _RELEASE.match(image.tag)) else None,
        backends=image.backends,
        pools=tuple(_pool(stack, pool) for pool in server.pools),
    )


def _pool(stack: Stack, pool: Pool) -> told.PoolFacts:
    loading = pool.loading
    return told.PoolFacts(
        name=pool.name,
        loading=loading.mode,
        gpu=not isinstance(pool.placement, CpuPlacement),
        gpus=devices_per_replica(pool.placement),
        memory_bytes=memory_bytes(pool, stack.data_plane.gpus),
        capacity_bytes=capacity_bytes(pool),
        poll_seconds=loading.poll_seconds if isinstance(loading, Preload) else None,
    )


def _model(stack: Stack, model: Model) -> told.ModelFacts:
    server = next(server for server in stack.platform.servers if server.name == model.server)
    return told.ModelFacts(
        name=model.name,
        server=model.server,
        pool=next(iter(model.pools(server.pools[0].name))),
        versions=tuple(routing.VersionShare(version=each.version, weight=each.weight) for each in model.versions),
        alias=model.alias,
        footprint_bytes=byte_count(model.footprint) if model.footprint else None,
        served_names=model.served_names or None,
    )


def _volume(stack: Stack, dataset: Dataset) -> str:
    """Return which volume a dataset's root is on, and where.

    Two that are one may have two names here, since drivers name volumes as they like, and are then published to twice,
    which does no harm; two that differ never have the same.
    """
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
