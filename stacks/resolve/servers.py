"""Servers of every kind, their pools and their models."""

from components.args import GRACE_SECONDS, ModelArgs, OnDemandArgs, PoolArgs, PulumiTimeouts, ServerArgs

from ..definition.base import byte_count, extended
from ..definition.models import Model
from ..definition.pools import OnDemand, Pool, Preload
from ..definition.servers import Server
from ..devices import capacity_bytes, most_replicas
from ..images_lock import ImagesLock
from ..stack import Stack
from .datasets import repository
from .kinds import KINDS

READY_MARGIN_SECONDS = 300  # Beyond start-up: scheduling, pulling the image, mounting.


def image_reference(stack: Stack, lock: ImagesLock, name: str) -> str:
    """Return the image of a name: from the data plane's mirror, with its digest where there is one."""
    image = next(image for image in stack.platform.images if image.name == name)
    digest = lock.digest(image.reference)
    return f"{image.mirrored(stack.data_plane.registries)}:{image.tag}" + (f"@{digest}" if digest else "")


def server_args(stack: Stack, lock: ImagesLock, server: Server) -> ServerArgs:
    """Return the arguments of one server."""
    kind = KINDS[server.kind]
    return extended(
        kind.args,
        server,
        image=image_reference(stack, lock, server.image),
        repository=repository(stack, server),
        pools=tuple(_pool(stack, server, pool, kind.exit_seconds(server)) for pool in server.pools),
        **kind.settings(server),
    )


def _pool(stack: Stack, server: Server, pool: Pool, exit_seconds: int) -> PoolArgs:
    longest = GRACE_SECONDS + exit_seconds + pool.startup_seconds
    return extended(
        PoolArgs,
        pool,
        loading=_loading(pool),
        replicas=1 if pool.replicas is None else pool.replicas,
        models=tuple(_model(model) for model in stack.models_of(server, pool)),
        pulumi_timeouts=PulumiTimeouts(
            ready=pool.startup_seconds + READY_MARGIN_SECONDS,
            # An update goes from pod to pod.
            updated=most_replicas(pool) * longest + READY_MARGIN_SECONDS,
        ),
    )


def _loading(pool: Pool) -> Preload | OnDemandArgs:
    loading = pool.loading
    if not isinstance(loading, OnDemand):
        return loading
    # What follows from the slice is left to follow, should anybody change the profile in the chart's values.
    follows = loading.capacity is None and getattr(pool.placement, "profile", None) is not None
    return extended(OnDemandArgs, loading, capacity_bytes=None if follows else capacity_bytes(pool))


def _model(model: Model) -> ModelArgs:
    return extended(ModelArgs, model, footprint_bytes=byte_count(model.footprint) if model.footprint else None)
