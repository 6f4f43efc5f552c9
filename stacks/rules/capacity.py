"""Capacity: slices that exist, models that fit."""

from collections import Counter
from collections.abc import Iterator

from .. import devices
from ..definition.base import byte_count
from ..definition.gpu_products import gpu_product
from ..definition.placement import DraPlacement, MigPlacement, WholeGpuPlacement
from ..definition.pools import OnDemand
from ..problems import Problem
from ..stack import Definition, Stack
from .references import suggestion, unknown


def mig_profiles_exist_on_their_product(stack: Stack) -> Iterator[Problem]:
    """Each GPU product has its own profiles."""
    for path, _, pool in stack.pools():
        if not isinstance(pool.placement, MigPlacement | DraPlacement) or pool.placement.profile is None:
            continue
        product = gpu_product(pool.placement.product) if pool.placement.product else None
        if product is not None and pool.placement.profile not in product.profiles:
            what = f"{pool.placement.product} has no MIG profile {pool.placement.profile}"
            do = suggestion(pool.placement.profile, product.profiles)
            yield stack.source.problem((*path, "placement", "profile"), what, do=do)


def preloaded_models_fit_a_replica(stack: Stack) -> Iterator[Problem]:
    """All models of a preload pool are in memory at once, in each replica."""
    for path, server, pool in stack.pools():
        memory = devices.memory_bytes(pool)
        if isinstance(pool.loading, OnDemand) or memory is None:
            continue
        total = sum(byte_count(model.footprint) for model in stack.models_of(server, pool) if model.footprint)
        if total > memory:
            what = f"the declared footprints on {server.name}/{pool.name} sum to {_gb(total)}"
            do = "Give replicas more memory, or move models to an on-demand pool."
            yield stack.source.problem((*path, "placement"), f"{what}, and a replica has {_gb(memory)}", do=do)


def on_demand_models_fit_their_capacity(stack: Stack) -> Iterator[Problem]:
    """A model larger than the capacity can never be loaded, and pinned ones must fit together."""
    for path, server, pool in stack.pools():
        if not isinstance(pool.loading, OnDemand):
            continue
        memory = devices.memory_bytes(pool)
        capacity = devices.capacity_bytes(pool)
        if capacity is None:
            what = f"{server.name}/{pool.name} has no capacity, and none follows from its placement"
            do = "Add loading.capacity: the bytes that models may take on each replica."
            yield stack.source.problem((*path, "loading"), what, do=do)
            continue
        if memory is not None and capacity > memory:
            what = f"capacity {pool.loading.capacity} is more than the {_gb(memory)} that a replica has"
            do = "Leave some of it to the server itself; without capacity, nine tenths are used."
            yield stack.source.problem((*path, "loading", "capacity"), what, do=do)
        models = stack.models_of(server, pool)
        for model in models:
            if model.footprint is not None and byte_count(model.footprint) > capacity:
                room = f"{server.name}/{pool.name} has {_gb(capacity)}: it could never be loaded"
                what = f'model "{model.name}" takes {model.footprint}, and {room}'
                place = ("models", stack.platform.models.index(model), "footprint")
                yield stack.source.problem(place, what, do="Put it on a pool whose replicas have more memory.")
        pinned = {model.name for model in models if model.pinned}
        kept = {"the pinned models": pinned} | {
            f'the pinned models and those of warm window "{window.name}"': pinned | set(window.models)
            for window in pool.loading.warm_windows
        }
        for what, together in kept.items():
            total = sum(byte_count(model.footprint) for model in models if model.name in together and model.footprint)
            if total > capacity:
                what = f"{what} of {server.name}/{pool.name} sum to {_gb(total)}, and its capacity is {_gb(capacity)}"
                do = "Keep fewer models resident, or give replicas more memory."
                yield stack.source.problem((*path, "loading"), what, do=do)
                break


def node_selectors_leave_the_placement_alone(stack: Stack) -> Iterator[Problem]:
    """The labels of NVIDIA's device plugin follow from the placement."""
    for path, server, pool in stack.pools():
        for key in pool.node_selector:
            if key.startswith("nvidia.com/"):
                what = f"nodeSelector of {server.name}/{pool.name} sets {key}, which follows from its placement"
                do = "Say product, profile and strategy in placement."
                yield stack.source.problem((*path, "nodeSelector", key), what, do=do)


def only_on_demand_models_are_pinned_or_idle(stack: Stack) -> Iterator[Problem]:
    """A preload pool holds all its models all the time."""
    for _, server, pool in stack.pools():
        if isinstance(pool.loading, OnDemand):
            continue
        do = "Take it away, or put the model on an on-demand pool."
        for model in stack.models_of(server, pool):
            index = stack.platform.models.index(model)
            for key, said in (("pinned", model.pinned), ("idleSeconds", model.idle_seconds is not None)):
                if said:
                    what = f'{key} of model "{model.name}" means nothing: {server.name}/{pool.name} evicts no model'
                    yield stack.source.problem(("models", index, key), what, do=do, severity="advisory")


def models_stay_idle_longer_than_a_lease(stack: Stack) -> Iterator[Problem]:
    """A model in use would count as idle before its lease ends."""
    for _, server, pool in stack.pools():
        if not isinstance(pool.loading, OnDemand) or pool.loading.policy == "lru":
            continue
        for model in stack.models_of(server, pool):
            if model.idle_seconds is not None and model.idle_seconds < pool.loading.lease_seconds:
                lease = f"leaseSeconds {pool.loading.lease_seconds} of {server.name}/{pool.name}"
                what = f"idleSeconds {model.idle_seconds} is less than {lease}"
                why = "A model in use would count as idle before its lease ends."
                yield stack.source.problem(("models", stack.platform.models.index(model), "idleSeconds"), what, why)


def products_that_are_asked_for_are_there(stack: Stack) -> Iterator[Problem]:
    """A product that no node has is mistyped, more often than missing."""
    known = {group.product for group in stack.data_plane.gpus}
    for path, _, pool in stack.pools():
        product = getattr(pool.placement, "product", None)
        if product is not None and known:
            what = f'data plane "{stack.data_plane.name}" has no GPU of this product'
            yield from unknown(stack.source, (*path, "placement", "product"), what, product, known)


def whole_gpus_are_told_from_slices(stack: Stack) -> Iterator[Problem]:
    """Slices of strategy single, and shares that are not renamed, are nvidia.com/gpu too: only the product differs."""
    plane = stack.data_plane
    alike = [group for group in plane.gpus if group.sharing or (group.mig and group.mig.strategy == "single")]
    for path, server, pool in stack.pools():
        if alike and isinstance(pool.placement, WholeGpuPlacement) and pool.placement.product is None:
            what = f"{server.name}/{pool.name} asks for whole GPUs of any product"
            why = f'It may get slices of {alike[0].product} in data plane "{plane.name}".'
            yield stack.source.problem((*path, "placement"), what, why, "Add product.")


def slices_asked_for_are_there(definition: Definition) -> Iterator[Problem]:
    """All environments of a data plane together may ask for what its GPUs give, of any product and of each."""
    stacks: dict[str, list[Stack]] = {}
    for stack in definition.stacks:
        stacks.setdefault(stack.data_plane.name, []).append(stack)
    for index, plane in enumerate(definition.header.data_planes):
        there = devices.inventory(plane.gpus)
        products = {group.product for group in plane.gpus}
        asked: Counter[tuple[devices.Device, str | None]] = Counter()
        askers: dict[tuple[devices.Device, str | None], list[str]] = {}
        pools = [(stack, *at) for stack in stacks.get(plane.name, ()) for at in stack.pools()]
        for stack, path, server, pool in pools:
            device, product = devices.device(pool.placement), getattr(pool.placement, "product", None)
            if device is None or (product is not None and products and product not in products):
                continue  # of a product that is not there it is said where it is asked for
            count = devices.most_replicas(pool) * devices.devices_per_replica(pool.placement)
            line = stack.source.position((*path, "placement")).line
            for key in dict.fromkeys([(device, None), (device, product)]):
                asked[key] += count
                asker = f"{stack.name} {server.name}/{pool.name}: {count} (placement in line {line})"
                askers.setdefault(key, []).append(asker)
        short: set[devices.Device] = set()
        for (device, product), count in asked.items():
            available = sum(n for (kind, made), n in there.items() if kind == device and product in (None, made))
            if count > available and device not in short:
                short.add(device)
                what = f"{device}" + (f" of {product}" if product else "")
                what = f'data plane "{plane.name}" has {available} × {what}, and its environments ask for {count}'
                why = f"Asked for by {'; '.join(askers[device, product])}."
                do = "Ask for fewer (an autoscaler's max counts), or tell of more GPUs under gpus."
                yield definition.document.problem(("dataPlanes", index, "gpus"), what, why=why, do=do)


def gpus_of_a_replica_are_in_one_node(definition: Definition) -> Iterator[Problem]:
    """A pod runs on one node, so its GPUs are there, all of them."""
    for stack in definition.stacks:
        for path, server, pool in stack.pools():
            if not isinstance(pool.placement, WholeGpuPlacement) or pool.placement.count == 1:
                continue
            count, product = pool.placement.count, pool.placement.product
            whole = [group for group in stack.data_plane.gpus if group.mig is None and group.sharing is None]
            room = sum(group.nodes * (group.per_node // count) for group in whole if product in (None, group.product))
            if devices.most_replicas(pool) > room:
                asks = f"{server.name}/{pool.name} asks for {devices.most_replicas(pool)} × {count} GPUs in one node"
                what = f'{asks}, and data plane "{stack.data_plane.name}" has room for {room}'
                do = "Ask for fewer GPUs a replica, or tell of nodes with more."
                yield stack.source.problem((*path, "placement", "count"), what, do=do)


def _gb(count: int) -> str:
    return f"{count / 10**9:.1f} GB"
