"""Servers of every kind, their pools and their models."""

from typing import Any

from components.args import GRACE_SECONDS, OpenaiServerArgs, PoolArgs, PulumiTimeouts, TritonServerArgs

from ..definition.base import Renamable, copy_as
from ..definition.kinds import AnyServer
from ..definition.placement import CpuPlacement
from ..definition.pools import POOL_REPLICAS, Loading, OnDemand, Pool
from ..definition.servers import Server
from ..definition.triton import TritonServer
from ..devices import capacity_bytes, most_replicas
from ..images_lock import ImagesLock
from ..stack import Stack
from .datasets import repository

READY_MARGIN_SECONDS = 300  # Beyond start-up: scheduling, pulling the image, mounting.


def image_reference(stack: Stack, lock: ImagesLock, name: str) -> str:
    """Return the image with a name, from the data plane's mirror and with its digest, if any."""
    image = next(image for image in stack.platform.images if image.name == name)
    digest = lock.digest(image.reference)
    return f"{image.mirrored(stack.data_plane.registries)}:{image.tag}" + (f"@{digest}" if digest else "")


def names(item: Renamable) -> dict[str, Any]:
    """Return the name of an item's objects, and its current name if that differs."""
    return {"name": item.made_as, "called": item.name if item.formerly else None}


def server_args(stack: Stack, lock: ImagesLock, server: AnyServer) -> TritonServerArgs | OpenaiServerArgs:
    """Return the arguments of one server."""
    kind: type[TritonServerArgs | OpenaiServerArgs]
    if isinstance(server, TritonServer):
        kind, exit_seconds = TritonServerArgs, server.triton.exit_timeout_seconds
    else:
        kind, exit_seconds = OpenaiServerArgs, server.openai.exit_timeout_seconds
    return copy_as(
        kind,
        server,
        **names(server),
        image=image_reference(stack, lock, server.image),
        repository=repository(stack, server),
        pools=tuple(_pool(stack, server, pool, exit_seconds) for pool in server.pools),
    )


def _pool(stack: Stack, server: Server, pool: Pool, exit_seconds: int) -> PoolArgs:
    longest = GRACE_SECONDS + exit_seconds + pool.startup_seconds
    return copy_as(
        PoolArgs,
        pool,
        **names(pool),
        loading=_loading(stack, server, pool),
        replicas=POOL_REPLICAS if pool.replicas is None else pool.replicas,
        models=tuple(  # each with only the versions that the pool serves
            model.model_copy(update={"versions": model.pools(server.pools[0].name)[pool.name]})
            for model in stack.models_of(server, pool)
        ),
        pulumi_timeouts=PulumiTimeouts(
            ready=pool.startup_seconds + READY_MARGIN_SECONDS,
            # An update replaces one pod after another.
            updated=most_replicas(pool) * longest + READY_MARGIN_SECONDS,
        ),
    )


def _loading(stack: Stack, server: Server, pool: Pool) -> Loading:
    """Return the loading of a pool, with the default capacity of the device or of the container's memory."""
    if not isinstance(pool.loading, OnDemand):
        return pool.loading
    capacity, on_cpu = capacity_bytes(pool), isinstance(pool.placement, CpuPlacement)
    known = capacity and (f"{capacity}" if on_cpu else f"{capacity // 10**6}M")
    update = {"capacity": pool.loading.capacity or known, "staging": stack.staging(server, pool)}
    return pool.loading.model_copy(update=update)
