"""Names, labels and image references, each made in one place only."""

from ..definition.images import Image
from ..definition.servers import Pool, Server
from ..images_lock import ImagesLock
from ..stack import Stack

PROXY = "inference-proxy"
PROXY_HEADLESS = f"{PROXY}-headless"
ROLE = "tidegate.dev/role"
LOADING = "tidegate.dev/loading"
ON_DEMAND = "on-demand"

Labels = dict[str, str]


def labels(stack: Stack, name: str) -> Labels:
    """Return the labels that every object carries."""
    return {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": stack.environment.name,
        "app.kubernetes.io/part-of": "tidegate",
        "app.kubernetes.io/managed-by": "tidegate",
    }


def proxy_selector(stack: Stack) -> Labels:
    """Return the labels by which the proxy's pods are found."""
    return {"app.kubernetes.io/name": PROXY, "app.kubernetes.io/instance": stack.environment.name}


def server_selector(stack: Stack) -> Labels:
    """Return the labels by which the pods of all servers are found."""
    return {"app.kubernetes.io/instance": stack.environment.name, ROLE: "server"}


def on_demand_selector(stack: Stack) -> Labels:
    """Return the labels by which the pods with an eviction policy are found."""
    return {**server_selector(stack), LOADING: ON_DEMAND}


def pool_selector(stack: Stack, server: Server, pool: Pool) -> Labels:
    """Return the labels by which a pool's pods are found."""
    return {
        "app.kubernetes.io/name": server.kind,
        "app.kubernetes.io/instance": stack.environment.name,
        "tidegate.dev/server": server.name,
        "tidegate.dev/pool": pool.name,
    }


def pool_name(server: Server, pool: Pool) -> str:
    """Return the name of a pool's StatefulSet, Service and budget."""
    return f"{server.name}-{pool.name}"


def headless_name(server: Server, pool: Pool) -> str:
    """Return the name of the Service whose addresses are the pool's replicas."""
    return f"{pool_name(server, pool)}-headless"


def service_account(server: Server) -> str:
    """Return the name of the ServiceAccount of a server's pods."""
    return f"{server.kind}-{server.name}"


def image_reference(stack: Stack, lock: ImagesLock, name: str) -> str:
    """Return the image of a name: from the data plane's mirror, with its digest where there is one."""
    image = next(image for image in stack.platform.images if image.name == name)
    digest = lock.digest(image.reference)
    return f"{mirrored(image, stack.data_plane.registries)}:{image.tag}" + (f"@{digest}" if digest else "")


def mirrored(image: Image, registries: dict[str, str]) -> str:
    """Return an image's repository, with its registry host replaced by a mirror where the data plane has one."""
    host, slash, rest = image.repository.partition("/")
    if not slash or not ({".", ":"} & set(host) or host == "localhost"):
        host, rest = "docker.io", image.repository
        return f"{registries[host]}/{rest}" if host in registries else image.repository
    return f"{registries.get(host, host)}/{rest}"
