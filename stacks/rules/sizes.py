"""Rules of sizes: the CPU and memory that pods take from nodes, and host memory, disk and time that models need."""

import re
from collections.abc import Iterator, Mapping

from .. import devices
from ..definition import DataPlane
from ..definition.base import byte_count, did_you_mean, nearest, quantity_value
from ..definition.openai import OpenaiServer
from ..definition.placement import CpuPlacement, GpuNodes, Placement
from ..definition.pools import OnDemand, Pool
from ..definition.servers import Server
from ..definition.triton import OLDEST_TRITON, TritonServer
from ..devices import gb
from ..load import PathInTree
from ..problems import Problem, Severity
from ..stack import Definition, Stack
from .rule import definition_rule, stack_rule

_MOST = {"cpu": 384, "memory": 4 * 2**40}
"""Cores and bytes of the largest usual nodes. "500" cores is probably a typo for 500m, and 8Ti for 8Gi."""
_BYTES_A_SECOND = 500 * 10**6  # The assumed highest rate at which a preload pool reads models.
_START = {"cpu": 20, "gpu": 50, "engine": 100}  # Seconds that a server takes to start, without its models.
_LEAST_SHARED = 2 * 2**30  # Of /dev/shm, for engines that spread a model over several GPUs.
_LEAST_SHARED_OF_PYTHON = 64 * 2**20  # Of /dev/shm, for the Python backend.


def _requests(stack: Stack, server: Server, pool: Pool) -> dict[str, float]:
    """Return the CPU cores and the bytes of memory that one replica requests."""
    policy = isinstance(pool.loading, OnDemand)
    tier = stack.staging(server, pool)
    memory = byte_count(pool.resources.memory) + (byte_count(pool.policy_resources.memory) if policy else 0)
    memory += byte_count(tier.size) if tier and tier.kind == "memory" else 0
    cores = quantity_value(pool.resources.cpu) + (quantity_value(pool.policy_resources.cpu) if policy else 0)
    return {"cpu": float(cores), "memory": float(memory)}


def _has(group: GpuNodes, key: str) -> float:
    """Return the cores or bytes that pods can have on each node of a group, or 0 if the inventory lacks the key."""
    quantity = getattr(group, key)
    return 0.0 if quantity is None else float(quantity_value(quantity))


def _text(key: str, amount: float) -> str:
    return gb(int(amount)) + " of memory" if key == "memory" else f"{amount:g} CPU cores"


def _groups(plane: DataPlane, pool: Pool) -> frozenset[int]:
    """Return the indexes of the groups of nodes that have the device of a pool."""
    kind, product = devices.device(pool.placement), getattr(pool.placement, "product", None)
    return frozenset(
        index
        for index, group in enumerate(plane.gpus)
        if any(device == kind and product in (None, made) for device, made in devices.inventory([group]))
    )


@definition_rule("The nodes have the CPU and the memory of all replicas")
def nodes_hold_all_replicas(definition: Definition) -> Iterator[Problem]:
    """Replicas for which there are GPUs stay Pending if the nodes lack the CPU or the memory for all of them."""
    for index, plane in enumerate(definition.header.data_planes):
        pools = [
            (
                _groups(plane, pool),
                devices.most_replicas(pool),
                _requests(stack, server, pool),
                f"{stack.name} {server.name}/{pool.name}",
            )
            for stack in definition.stacks
            if stack.data_plane == plane
            for _, server, pool in stack.pools()
        ]
        for key in ("cpu", "memory"):
            for where in sorted({groups for groups, *_ in pools if groups}, key=len):
                each = [_has(plane.gpus[group], key) for group in where]
                there = sum(plane.gpus[group].nodes * has for group, has in zip(where, each, strict=True))
                sharers = [
                    (count, takes[key], name) for groups, count, takes, name in pools if groups and groups <= where
                ]
                total = sum(count * one for count, one, _ in sharers)
                too_large = [name for count, one, name in sharers if count and one > max(each)]
                if all(each) and total > there and not too_large:
                    by = ", ".join(f"{name}: {count} × {_text(key, one)}" for count, one, name in sharers)
                    what = f'replicas on data plane "{plane.name}" request {_text(key, total)}'
                    what = f"{what}, but the nodes that they can run on have {_text(key, there)}"
                    do = f"Set fewer replicas (an autoscaler's max counts) or a smaller resources.{key}"
                    do = f"{do}, or add nodes under gpus."
                    yield definition.document.problem(("dataPlanes", index, "gpus"), what, f"Requested by {by}.", do)
                    break


@stack_rule("A pod's CPU and memory fit into a node")
def pods_fit_into_a_node(stack: Stack) -> Iterator[Problem]:
    plane, proxy = stack.data_plane, stack.platform.proxy.resources
    for path, server, pool in stack.pools():
        on_cpu = isinstance(pool.placement, CpuPlacement)
        groups = plane.gpus if on_cpu else [plane.gpus[group] for group in _groups(plane, pool)]
        for key, amount in _requests(stack, server, pool).items():
            each = [_has(group, key) for group in groups]
            where, what = (*path, "resources", key), f"{server.name}/{pool.name} requests {_text(key, amount)}"
            if each and all(each) and amount > max(each):
                has = _text(key, max(each))
                what = f'{what}, but the largest node of data plane "{plane.name}" that it can run on has {has}'
                do = f"Set a smaller resources.{key}"
                do += ", unless there are larger nodes without a GPU." if on_cpu else f", or correct {key} under gpus."
                on_demand = isinstance(pool.loading, OnDemand)
                why = "The policyResources and a staging tier in memory count too." if on_demand else ""
                severity: Severity = "advisory" if on_cpu else "error"
                yield stack.source.problem(where, what, why, do, severity=severity)
            elif not (each and all(each)) and amount > _MOST[key]:
                yield _too_much(stack, where, what, f"{pool.resources.cpu}m" if key == "cpu" else "16Gi")
    for key, quantity, meant in (("cpu", proxy.cpu, f"{proxy.cpu}m"), ("memory", proxy.memory, "2Gi")):
        amount = float(quantity_value(quantity))
        if amount > _MOST[key]:
            what = f"the proxy requests {_text(key, amount)}"
            yield _too_much(stack, ("proxy", "resources", key), what, meant)


def _too_much(stack: Stack, path: tuple[str | int, ...], what: str, meant: str) -> Problem:
    why = "Few nodes have that much, so the pod would probably stay Pending."
    return stack.source.problem(path, what, why, f"Set what one replica needs, such as {meant}.", severity="advisory")


@stack_rule("A replica's own memory can hold its largest model", "advisory")
def host_memory_holds_the_largest_model(stack: Stack) -> Iterator[Problem]:
    """A server reads a model into host memory before, or while, it copies the model to the GPU."""
    for path, server, pool in stack.pools():
        models = [model for model in stack.models_of(server, pool) if model.footprint]
        if isinstance(pool.placement, CpuPlacement) or not models:
            continue
        largest = max(models, key=lambda model: byte_count(model.footprint or "1Mi"))
        needed = byte_count(largest.footprint or "1Mi")
        if isinstance(server, OpenaiServer):
            needed //= 2  # Part of an engine's footprint is its cache, which is only on the GPU.
        memory = byte_count(pool.resources.memory) - byte_count(pool.shared_memory)
        if needed > memory:
            what = f'model "{largest.name}" takes {largest.footprint}'
            what = f"{what}, but a replica of {server.name}/{pool.name} has {gb(memory)} of host memory"
            why = "That is resources.memory without sharedMemory. The kernel kills the server while it loads the model."
            do = f"Raise resources.memory of {pool.resources.memory} above the size of the model's files."
            yield stack.source.problem((*path, "resources", "memory"), what, why, do)


@stack_rule("Processes of a replica have enough shared memory", "advisory")
def shared_memory_is_enough(stack: Stack) -> Iterator[Problem]:
    """The GPUs of one engine, and the processes of Triton's Python backend, exchange data in /dev/shm."""
    backends = {image.name: image.backends for image in stack.platform.images}
    for path, server, pool in stack.pools():
        shared = byte_count(pool.shared_memory)
        size = server.openai.tensor_parallel_size if isinstance(server, OpenaiServer) else 1
        has_python = "python" in backends.get(server.image, ())
        if size > 1 and shared < _LEAST_SHARED:
            what = f"{server.name}/{pool.name} spreads a model over {size} GPUs with sharedMemory {pool.shared_memory}"
            why = "Its processes exchange data in /dev/shm (NCCL), and exit with a bus error if that is full."
            do = "Set sharedMemory to 2Gi or more, such as 16Gi. It counts towards resources.memory."
        elif isinstance(server, TritonServer) and has_python and shared < _LEAST_SHARED_OF_PYTHON:
            what = f"{server.name}/{pool.name} has sharedMemory {pool.shared_memory}"
            why = "Triton's Python backend exchanges tensors with its models there, at least 1 MB with each."
            do = "Set sharedMemory to 64Mi or more, unless no model uses the Python backend."
        else:
            continue
        where = (*path, "sharedMemory") if "shared_memory" in pool.model_fields_set else path
        yield stack.source.problem(where, what, why, do)


@stack_rule("A replica has the time that its preloaded models need", "advisory")
def preloading_ends_before_the_startup_does(stack: Stack) -> Iterator[Problem]:
    """Kubernetes restarts a replica that is not ready after `startupSeconds`, and its loads start again."""
    for path, server, pool in stack.pools():
        preloads = not isinstance(pool.loading, OnDemand)
        models = [model for model in stack.models_of(server, pool) if preloads or model.pinned]
        size = sum(byte_count(model.footprint) for model in models if model.footprint)
        is_engine = isinstance(server, OpenaiServer) and not isinstance(pool.placement, CpuPlacement)
        kind = "engine" if is_engine else "cpu" if isinstance(pool.placement, CpuPlacement) else "gpu"
        # Part of an engine's footprint is its cache, which it does not read from files.
        least = _START[kind] + size // (_BYTES_A_SECOND * (2 if is_engine else 1))
        if models and pool.startup_seconds < least:
            what = f"startupSeconds {pool.startup_seconds} of {server.name}/{pool.name} is too short for its models"
            why = f"They take {gb(size)}, so it needs about {least} s at 500 MB/s. Kubernetes restarts it before that."
            do = f"Set startupSeconds to {max(300, 3 * least)} or more."
            where = (*path, "startupSeconds") if "startup_seconds" in pool.model_fields_set else path
            yield stack.source.problem(where, what, why, do)


_ENGINES = "triton", "vllm", "sglang", "trtllm"
_OF_ENGINE = re.compile(r"(?:^|/)(tritonserver|vllm-(?:openai|runtime)|sglang(?:-runtime)?|tensorrtllm-runtime)$")
_TAG = re.compile(r"(?P<release>[12][0-9]\.(0[1-9]|1[0-2]))(-|$)")


@stack_rule("The image of a Triton server is of a supported release", "advisory")
def tritons_are_supported(stack: Stack) -> Iterator[Problem]:
    """Older releases lack options that Tidegate sets, or crash when a caller cancels a gRPC call."""
    used = {server.image for server in stack.platform.servers if isinstance(server, TritonServer)}
    for index, image in enumerate(stack.platform.images):
        found = _TAG.match(image.tag)
        is_triton = "triton" in image.repository.rpartition("/")[2] or "py3" in image.tag.split("-")
        if image.name not in used or not is_triton or not found:
            continue
        path = ("images", index, "tag")
        if found["release"] < OLDEST_TRITON:
            what = f"image {image.name} is Triton {found['release']}, older than {OLDEST_TRITON}"
            why = "An older one can crash when a caller cancels a gRPC call, or lacks options that Tidegate sets."
            do = f"Set tag to {OLDEST_TRITON}-py3 or later, and run `tidegate pin`."
            yield stack.source.problem(path, what, why, do)
        elif re.search(r"-(py3-)?(sdk|min|build)(-|$)", image.tag):
            what = f"image {image.name} is {image.tag}, which has no Triton server or no backends"
            yield stack.source.problem(path, what, do=f"Set tag to {found['release']}-py3, and run `tidegate pin`.")


@stack_rule("An image is of its server's kind", "advisory")
def images_are_of_their_servers_kind(stack: Stack) -> Iterator[Problem]:
    """The command of a server does not exist in an image of another one. Only usual names of images are compared."""
    for server in stack.platform.servers:
        engine = getattr(server.settings, "worker", getattr(server.settings, "engine", server.kind))
        for index, image in enumerate(stack.platform.images):
            found = _OF_ENGINE.search(image.repository) if image.name == server.image and engine in _ENGINES else None
            if found and not found[1].replace("tensorrtllm", "trtllm").startswith(engine):
                what = f"image {image.name} is {found[1]}, but server {server.name} runs {engine}"
                do = f"Set the repository of an image with {engine}, or another kind or engine of the server."
                yield stack.source.problem(("images", index, "repository"), what, do=do)


@stack_rule("Proxy and eviction policy are of one release", "advisory")
def proxy_and_policy_are_of_one_release(stack: Stack) -> Iterator[Problem]:
    """Both use one lease protocol, and different releases of them were not tested together."""
    tags = {image.name: image.tag for image in stack.platform.images}
    both = (tags.get(name, "") for name in ("proxy", "eviction-policy"))
    proxy, policy = (re.match(r"v?([0-9]+\.[0-9]+)\.[0-9]+", tag) for tag in both)
    if proxy and policy and proxy[1] != policy[1]:
        index = next(n for n, image in enumerate(stack.platform.images) if image.name == "eviction-policy")
        what = f"the eviction policy is {tags['eviction-policy']}, but the proxy is {tags['proxy']}"
        yield stack.source.problem(("images", index, "tag"), what, do="Set both tags to one release.")


_KNOWN_LABELS = {
    "kubernetes.io": ("os", "arch", "hostname"),
    "beta.kubernetes.io": ("os", "arch", "instance-type"),
    "topology.kubernetes.io": ("zone", "region"),
    "failure-domain.beta.kubernetes.io": ("zone", "region"),
    "node.kubernetes.io": (
        "instance-type",
        "windows-build",
        "exclude-from-external-load-balancers",
        "exclude-balancing",
    ),
}
"""Labels of nodes that Kubernetes defines, by prefix. It reserves these prefixes."""
_CLOUDS = {
    **dict.fromkeys(("gcp", "cloud.google.com"), "gke_"),
    **dict.fromkeys(("aws", "eks.amazonaws.com", "karpenter.k8s.aws", "k8s.aws"), "arn:aws"),
    "azure": "(none)",
}
"""Prefixes of contexts by the cloud and by the prefixes of its labels. Those of Azure have none."""
_REGION = re.compile(r"(?<![a-z0-9])([a-z]{2,}(-gov|-iso[a-z]?)?-[a-z]+-?[0-9]{1,2})(?![0-9])")
"""A region of AWS or Google Cloud: eu-central-1, europe-west4."""
_MODEL = re.compile(
    r"(?<![A-Z0-9])(T4|L4|L40S?|A10G?|A16|A30|A40|A100|H100|H200|H20|GH200|B200|GB200|B300|V100|P4|P100)(?![A-Z0-9])"
)


@stack_rule("Nodes can have the labels that pods select", "advisory")
def nodes_can_have_the_labels(stack: Stack) -> Iterator[Problem]:
    proxy, servers = stack.platform.proxy, enumerate(stack.platform.servers)
    pods: list[tuple[PathInTree, Mapping[str, str], Placement | None]] = [
        (("proxy",), proxy.node_selector, None),
        *((path, pool.node_selector, pool.placement) for path, _, pool in stack.pools()),
        *((("servers", n, "openai", "frontends"), server.shared_node_selector, None) for n, server in servers),
    ]
    for path, selector, placement in pods:
        product = getattr(placement, "product", None) or ""
        for key, value in selector.items():
            if wrong := _impossible(key, value, stack.data_plane.context_name, product):
                yield stack.source.problem((*path, "nodeSelector", key), *wrong)


@stack_rule("A server's identity is of its cluster's cloud", "advisory")
def identities_are_of_their_clusters_cloud(stack: Stack) -> Iterator[Problem]:
    context = stack.data_plane.context_name
    for index, server in enumerate(stack.platform.servers):
        if server.identity and _is_of_another_cloud(server.identity.cloud, context):
            what = f"cloud {server.identity.cloud} is another cloud than that of context {context}"
            yield stack.source.problem(
                ("servers", index, "identity", "cloud"), what, do="Set an identity of that cloud."
            )


def _is_of_another_cloud(key: str, context: str) -> bool:
    return key in _CLOUDS and context.startswith(("gke_", "arn:aws")) and not context.startswith(_CLOUDS[key])


def _impossible(key: str, value: str, context: str, product: str) -> tuple[str, ...]:
    """Return what, why and do of a problem if no node can have a label, or an empty tuple."""
    prefix, _, name = key.rpartition("/")
    made = _MODEL.search(product.upper())
    model = _MODEL.search(value.upper()) if "accelerator" in name or "gpu" in name else None
    here, there = _REGION.search(context), _REGION.search(value) if name in ("zone", "region") else None
    if prefix in _KNOWN_LABELS and name not in _KNOWN_LABELS[prefix]:
        near = did_you_mean(nearest(name, _KNOWN_LABELS[prefix]))
        why = f"Kubernetes reserves {prefix} for its labels, and defines none of this name."
        return f"no node has the label {key}", why, f"{near}Labels there: {', '.join(_KNOWN_LABELS[prefix])}."
    if name == "os" and prefix.endswith("kubernetes.io") and value != "linux":
        return f"the containers run on Linux, but {key} is {value}", "", "Set it to linux, or remove it."
    if name == "arch" and prefix.endswith("kubernetes.io") and value not in ("amd64", "arm64"):
        return f"no node with these images has {key}: {value}", "", "Set it to amd64 or arm64."
    if _is_of_another_cloud(prefix, context):
        return f"{key} is a label of another cloud than that of context {context}", "", "Remove it."
    if here and there and here[1] != there[1]:
        return f"{key} is {value}, but context {context} is in {here[1]}", "", "Set a zone of that region."
    if made and model and made[1] != model[1]:
        what = f"{key} selects nodes with {model[1]}, but placement.product is {made[1]}"
        return what, "", "Remove the label, because the placement selects the nodes. Or set the same product in both."
    return ()
