"""Resolves a stack: one environment on one data plane, as the components' arguments.

Defaults are filled in, overlays are laid over, images have their digests and mirrors, quantities that somebody counts
with are bytes. Names, labels, selectors and files are not made here: components compose them of what they are told.

Pure: the same stack and lock give the same result, and nothing is read or written.
"""

from dataclasses import replace

from components import EnvironmentArgs, PullSecretArgs

from ..definition.images import POLICY_IMAGE
from ..images_lock import ImagesLock
from ..stack import Stack
from .datasets import claims, dataset_volumes
from .names import image_reference
from .namespace import namespace
from .network import network_boundary
from .order import in_order
from .proxy import proxy
from .surroundings import domino, monitoring
from .triton import triton_server


def resolve(stack: Stack, lock: ImagesLock) -> EnvironmentArgs:
    """Return the arguments of the stack's Environment component."""
    stack = replace(stack, platform=in_order(stack.platform))
    images = {image.name for image in stack.platform.images}
    return EnvironmentArgs(
        name=stack.environment.name,
        namespace=namespace(stack),
        pull_secrets=[PullSecretArgs(name=secret.name) for secret in stack.platform.pull_secrets],
        datasets=dataset_volumes(stack),
        claims=claims(stack),
        eviction_policy_image=image_reference(stack, lock, POLICY_IMAGE) if POLICY_IMAGE in images else None,
        servers=[triton_server(stack, lock, server) for server in stack.platform.servers],
        proxy=proxy(stack, lock),
        network=network_boundary(stack),
        domino=domino(stack),
        monitoring=monitoring(stack),
    )
