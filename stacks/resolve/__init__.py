"""Resolves a stack: one environment on one data plane, as the components' arguments.

Defaults are filled in, overlays are laid over, images have their digests and mirrors, quantities that somebody counts
with are bytes. What needs no resolving goes on as it is: the components take the definition's own types. Names, labels,
selectors and files are not made here: components compose them of what they are told.

Pure: the same stack and lock give the same result, and nothing is read or written.
"""

from dataclasses import replace

from components import EnvironmentArgs
from components.network_boundary import NetworkBoundaryArgs

from ..definition.base import extended
from ..definition.images import POLICY_IMAGE
from ..images_lock import ImagesLock
from ..stack import Stack
from .datasets import claims, dataset_volumes
from .images import image_reference
from .namespace import namespace
from .order import in_order
from .proxy import proxy
from .servers import server_args


def resolve(stack: Stack, lock: ImagesLock) -> EnvironmentArgs:
    """Return the arguments of the stack's Environment component."""
    stack = replace(stack, platform=in_order(stack.platform))
    platform = stack.platform
    images = {image.name for image in platform.images}
    return EnvironmentArgs.model_construct(
        name=stack.environment.name,
        namespace=namespace(stack),
        pull_secrets=platform.pull_secrets,
        datasets=dataset_volumes(stack),
        claims=claims(stack),
        eviction_policy_image=image_reference(stack, lock, POLICY_IMAGE) if POLICY_IMAGE in images else None,
        servers=tuple(server_args(stack, lock, server) for server in platform.servers),
        proxy=proxy(stack, lock),
        network=_network(stack),
        domino=platform.domino,
        monitoring=platform.monitoring if platform.monitoring.operator else None,
    )


def _network(stack: Stack) -> NetworkBoundaryArgs:
    network = stack.platform.network
    reach = tuple(each.model_copy(update={"by": tuple(sorted({*each.by}))}) for each in network.reach)
    prometheus = stack.platform.monitoring.prometheus
    return extended(NetworkBoundaryArgs, network, reach=reach, prometheus=prometheus)
