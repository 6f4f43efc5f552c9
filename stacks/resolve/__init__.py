"""Resolves a stack: one environment on one data plane, with every value computed that follows from the definition.

Pure: the same stack and lock give the same result, and nothing is read or written.
"""

from dataclasses import replace

from components import EnvironmentArgs

from ..images_lock import ImagesLock
from ..stack import Stack
from .datasets import dataset_volumes
from .monitoring import mesh, monitoring
from .namespace import namespace, service_accounts
from .network import network_boundary
from .order import in_order
from .proxy import proxy
from .triton import triton_pool


def resolve(stack: Stack, lock: ImagesLock) -> EnvironmentArgs:
    """Return the arguments of the stack's Environment component."""
    stack = replace(stack, platform=in_order(stack.platform))
    return EnvironmentArgs(
        namespace=namespace(stack),
        service_accounts=service_accounts(stack),
        datasets=dataset_volumes(stack),
        network=network_boundary(stack),
        pools=[triton_pool(stack, lock, server, pool) for server in stack.platform.servers for pool in server.pools],
        proxy=proxy(stack, lock),
        monitoring=monitoring(stack),
        mesh=mesh(stack),
    )
