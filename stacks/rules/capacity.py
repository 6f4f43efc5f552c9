"""Rules of capacity: the GPU slices exist, and models fit into them."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from pydantic.alias_generators import to_camel
from tidegate_contracts.proxy_settings import ONE_CALLERS_SHARE

from .. import devices, mig_layouts
from ..definition import DataPlane
from ..definition.base import Section, byte_count
from ..definition.gpu_products import gpu_bytes, gpu_product, slice_bytes
from ..definition.mig_cuts import words
from ..definition.money import Cost, money
from ..definition.openai import OpenaiServer
from ..definition.placement import (
    CpuPlacement,
    GpuNodes,
    GpuSharing,
    SharedGpuPlacement,
    WholeGpuPlacement,
)
from ..definition.pools import OnDemand, Pool, QueueScaling
from ..definition.servers import Server
from ..devices import Device, gb
from ..load import Document, PathInTree
from ..problems import Position, Problem, counted
from ..stack import Definition, Stack
from .references import suggestion, unknown
from .rule import definition_rule, stack_rule

_MOST_INTERVAL = 30  # Seconds between scrapes, so that each minute has at least one.


@stack_rule("A MIG profile exists on the product that the pool names")
def mig_profiles_exist_on_their_product(stack: Stack) -> Iterator[Problem]:
    for path, _, pool in stack.pools():
        profile, profiles = _profile_of_product(pool)
        if profile not in profiles:
            what = f"{getattr(pool.placement, 'product', None)} has no MIG profile {profile}"
            yield stack.source.problem((*path, "placement", "profile"), what, do=suggestion(profile, profiles))


@definition_rule("Tidegate knows the GPU products and MIG profiles that the definition names", severity="advisory")
def gpus_that_are_not_known_are_named(definition: Definition) -> Iterator[Problem]:
    """Tidegate has no numbers for a product outside its table, so it checks nothing and does not notice a typo."""
    places: dict[str, Problem] = {}

    def note(source: Document, path: PathInTree, what: str) -> None:
        why = "No rule checks its memory and slices, previews show no price of a slice, and `plan` leaves it out."
        do = "Check the spelling. If it is right, set loading.capacity of on-demand pools, and check slices yourself."
        places.setdefault(what, source.problem(path, what, why, do, severity="advisory"))

    for index, plane in enumerate(definition.header.data_planes):
        for place, group in enumerate(plane.gpus):
            if gpu_product(group.product) is None:
                where = ("dataPlanes", index, "gpus", place, "product")
                note(definition.document, where, f"Tidegate knows no GPU product {group.product}")
    for stack in definition.stacks:
        for path, _, pool in stack.pools():
            product, profile = (getattr(pool.placement, key, None) for key in ("product", "profile"))
            if product is not None and gpu_product(product) is None:
                note(stack.source, (*path, "placement", "product"), f"Tidegate knows no GPU product {product}")
            elif product is None and profile is not None and slice_bytes(profile) is None:
                note(stack.source, (*path, "placement", "profile"), f"Tidegate knows no GPU with MIG profile {profile}")
    yield from places.values()


def _profile_of_product(pool: Pool) -> tuple[str, Collection[str]]:
    """Return a pool's MIG profile and the profiles of its product: only its own if the product is not known."""
    profile = getattr(pool.placement, "profile", None) or ""
    product = gpu_product(getattr(pool.placement, "product", None) or "")
    return profile, product.profiles if product and profile else (profile,)


@stack_rule("Preloaded models fit into the memory of one replica")
def preloaded_models_fit_a_replica(stack: Stack) -> Iterator[Problem]:
    """All models of a preload pool are in memory at once, in each replica."""
    for path, server, pool in stack.pools():
        memory = devices.memory_bytes(pool, stack.data_plane.gpus)
        if isinstance(pool.loading, OnDemand) or memory is None:
            continue
        total = sum(byte_count(model.footprint) for model in stack.models_of(server, pool) if model.footprint)
        if total > memory:
            what = f"the footprints on {server.name}/{pool.name} sum to {gb(total)}, but a replica has {gb(memory)}"
            yield stack.source.problem((*path, "placement"), what, do=_larger(server, pool))


def _larger(server: Server, pool: Pool) -> str:
    """Return a remedy that gives each replica of a pool more memory for models."""
    is_engine = isinstance(server, OpenaiServer)
    elsewhere = "" if is_engine else ", or move models to another pool"
    if isinstance(pool.placement, CpuPlacement):
        return f"Raise resources.memory of {pool.resources.memory}{elsewhere}."
    size = " (placement.count and openai.tensorParallelSize)" if is_engine else ""
    return f"Set a larger profile or product, or more whole GPUs{size}{elsewhere}."


@stack_rule("Each on-demand model fits into the capacity of its pool")
def on_demand_models_fit_their_capacity(stack: Stack) -> Iterator[Problem]:
    """A model larger than the capacity never loads, and all pinned models must fit together."""
    for path, server, pool in stack.pools():
        if not isinstance(pool.loading, OnDemand):
            continue
        memory = devices.memory_bytes(pool, stack.data_plane.gpus)
        capacity = devices.capacity_bytes(pool, stack.data_plane.gpus)
        if capacity is None:
            what = f"{server.name}/{pool.name} has no capacity, and its placement does not determine one"
            do = "Set loading.capacity: the memory that models may use on each replica."
            yield stack.source.problem((*path, "loading"), what, do=do)
            continue
        if memory is not None and capacity > memory:
            what = f"capacity {pool.loading.capacity} is more than the {gb(memory)} that a replica has"
            do = "Set a smaller capacity, which leaves memory for the server, or remove it: the default is nine tenths."
            yield stack.source.problem((*path, "loading", "capacity"), what, do=do)
        models = stack.models_of(server, pool)
        for model in models:
            if model.footprint is not None and byte_count(model.footprint) > capacity:
                needed = f"{model.footprint} ({gb(byte_count(model.footprint))})"
                what = f'model "{model.name}" needs {needed}, but {server.name}/{pool.name} has {gb(capacity)}'
                place = (*stack.path_of(model), "footprint")
                do = _larger(server, pool).replace("move models", "move it")
                yield stack.source.problem(place, what, do=do)
        total = sum(byte_count(model.footprint) for model in models if model.pinned and model.footprint)
        if total > capacity:
            pinned = f"the pinned models of {server.name}/{pool.name}"
            what = f"{pinned} sum to {gb(total)}, but its capacity is {gb(capacity)}"
            do = f"Pin fewer models. Otherwise: {_larger(server, pool)}"
            yield stack.source.problem((*path, "loading"), what, do=do)


@stack_rule("A pool's nodeSelector sets no label that follows from its placement")
def node_selectors_leave_the_placement_alone(stack: Stack) -> Iterator[Problem]:
    for path, server, pool in stack.pools():
        for key in pool.node_selector:
            if key.startswith("nvidia.com/"):
                what = f"nodeSelector of {server.name}/{pool.name} sets {key}, which follows from its placement"
                do = "Set product, profile and strategy under placement instead."
                yield stack.source.problem((*path, "nodeSelector", key), what, do=do)


@stack_rule("`idleSeconds` is not shorter than a lease")
def models_stay_idle_longer_than_a_lease(stack: Stack) -> Iterator[Problem]:
    """A model in use would count as idle before its lease ends."""
    for _, server, pool in stack.pools():
        if not isinstance(pool.loading, OnDemand):
            continue
        for model in stack.models_of(server, pool):
            if model.idle_seconds is not None and model.idle_seconds < pool.loading.lease_seconds:
                lease = f"leaseSeconds {pool.loading.lease_seconds} of {server.name}/{pool.name}"
                what = f"idleSeconds {model.idle_seconds} is less than {lease}"
                why = "A model in use would count as idle before its lease ends."
                do = f"Set idleSeconds to {pool.loading.lease_seconds} or more."
                yield stack.source.problem((*stack.path_of(model), "idleSeconds"), what, why, do)


@stack_rule("The data plane has the GPU products that pools name")
def products_that_are_asked_for_are_there(stack: Stack) -> Iterator[Problem]:
    known = {group.product for group in stack.data_plane.gpus}
    for path, _, pool in stack.pools():
        product = getattr(pool.placement, "product", None)
        if product is not None and known:
            what = f'data plane "{stack.data_plane.name}" has no GPU of this product'
            yield from unknown(stack.source, (*path, "placement", "product"), what, product, known)


@stack_rule("A pool of whole GPUs cannot land on nodes whose GPUs are sliced or shared")
def whole_gpus_are_told_from_slices(stack: Stack) -> Iterator[Problem]:
    """Slices of strategy `single` and shares are `nvidia.com/gpu` too. Only their product differs."""
    plane = stack.data_plane
    alike = [group for group in plane.gpus if group.sharing or group.strategy == "single"]
    for path, server, pool in stack.pools():
        if alike and isinstance(pool.placement, WholeGpuPlacement) and pool.placement.product is None:
            what = f"{server.name}/{pool.name} requests whole GPUs of any product"
            why = f'Kubernetes may give it slices of {alike[0].product} in data plane "{plane.name}".'
            yield stack.source.problem((*path, "placement"), what, why, "Set placement.product.")


@definition_rule("The data plane has enough GPU devices for the pools of all its environments")
def slices_asked_for_are_there(definition: Definition) -> Iterator[Problem]:
    """All environments of a data plane share its GPUs. The rule counts each product, and all products together."""
    stacks: dict[str, list[Stack]] = {}
    for stack in definition.stacks:
        stacks.setdefault(stack.data_plane.name, []).append(stack)
    for index, plane in enumerate(definition.header.data_planes):
        there = devices.inventory(plane.gpus)
        products = {group.product for group in plane.gpus}
        requested: Counter[tuple[Device, str | None]] = Counter()
        each: Counter[tuple[Device, str | None]] = Counter()
        takers: dict[tuple[Device, str | None], list[str]] = {}
        pools = [(stack, *at) for stack in stacks.get(plane.name, ()) for at in stack.pools()]
        # Several devices of one replica would have to be on one node.
        is_alone = all(devices.devices_per_replica(pool.placement) <= 1 for *_, pool in pools)
        for stack, path, server, pool in pools:
            device, product = devices.device(pool.placement), getattr(pool.placement, "product", None)
            profile, profiles = _profile_of_product(pool)
            if device is None or profile not in profiles or (product and products and product not in products):
                continue  # Other rules report a product or profile that does not exist.
            count = devices.most_replicas(pool) * devices.devices_per_replica(pool.placement)
            each[device, product] += count
            line = stack.source.position((*path, "placement")).line
            for key in dict.fromkeys([(device, None), (device, product)]):
                requested[key] += count
                taker = f"{stack.name} {server.name}/{pool.name}: {count} (placement in line {line})"
                takers.setdefault(key, []).append(taker)
        short: dict[Device, str] = {}
        why: list[str] = []
        for (device, product), count in requested.items():
            available = sum(n for (kind, made), n in there.items() if kind == device and product in (None, made))
            if count > available and device not in short:
                what = f"{device}" + (f" of {product}" if product else "")
                short[device] = f"{available} × {what}, but its environments request {count}"
                why += [f"It has {short[device]}."] if why else []
                why += [f"Requested by {', '.join(takers[device, product])}."]
        if short:
            what = f'data plane "{plane.name}" has {next(iter(short.values()))}'
            do = "Set fewer replicas (an autoscaler's max counts), or add GPUs under gpus."
            if other := _handed_out_otherwise(there, next(iter(short))):
                do = other
            elif is_alone and (found := mig_layouts.layout(plane.gpus, each)):
                group, layouts = found
                nodes = f"{len(layouts)} of {counted(range(group.nodes), 'node')} with {group.product}"
                do += f"\nOr cut {nodes} as follows, and set mig.slices there:"
                nodes_by_cut = Counter(words(cut) or "whole" for cut in layouts)
                do += "".join(f"\n{count} of them: {cut}" for cut, count in nodes_by_cut.items())
            yield definition.document.problem(("dataPlanes", index, "gpus"), what, "\n".join(why), do)


def _handed_out_otherwise(there: Counter[tuple[Device, str]], short: Device) -> str:
    """Return a remedy if the nodes have the missing slices, but hand them out in another way."""
    ways = {kind for kind, _ in there if short.profile and kind.profile == short.profile and kind != short}
    if not ways or any(kind == short for kind, _ in there):
        return ""
    way = min(ways, key=str)
    placement = "kind: dra" if way.kind == "dra" else f"kind: mig, strategy: {way.strategy}"
    strategy = "dra" if short.kind == "dra" else short.strategy
    return (
        f"Its nodes have slices {short.profile} as {way}. Set placement to {{{placement}, …}}. "
        f"If the nodes hand them out as {strategy}, set mig.strategy to {strategy} under gpus instead."
    )


@stack_rule("All replicas together, at an autoscaler's maximum, take at most `guardrails.gpuSlices` devices")
def devices_stay_under_their_ceiling(stack: Stack) -> Iterator[Problem]:
    """GPUs are expensive. The ceiling is per data plane. A slice, a share and a whole GPU each count as one device."""
    ceiling, pools = stack.platform.guardrails.gpu_slices, devices.taken(stack)
    total = sum(each.count for each in pools)
    if ceiling is not None and total > ceiling:
        most = ", ".join(f"{each.pool} {each.count}" for each in pools if each.count)
        what = f"its pools can take {total} GPU slices, but the ceiling is {ceiling}"
        do = "Set fewer replicas, or agree on a higher guardrails.gpuSlices with the owner of your budget."
        yield stack.source.problem(("guardrails", "gpuSlices"), what, f"Taken by {most}.", do)


@stack_rule("All replicas together, at an autoscaler's maximum, cost at most `guardrails.monthlyBudget` a month")
def the_cost_a_month_stays_within_its_budget(stack: Stack) -> Iterator[Problem]:
    """Tidegate multiplies the prices under `gpus` by 730 hours. A device without a price could cost any amount."""
    budget = stack.platform.guardrails.monthly_budget
    unit = devices.currency(stack.data_plane.gpus)
    pools = {each.pool: each.cost for each in devices.taken(stack) if each.count}
    total = sum(pools.values(), Cost())
    if budget is None or (total.month is not None and total.month <= budget):
        return
    what = f"its pools can cost {total} a month, but the budget is {money(budget, unit)}"
    if total.unpriced:
        what = f"there is a budget, but {total.unpriced} of its {total.devices} GPU devices have no price"
    why = f"Taken by {', '.join(f'{name}: {one}' for name, one in pools.items())}."
    do = "Set fewer replicas or smaller slices, agree on a higher guardrails.monthlyBudget, or set prices under gpus."
    yield stack.source.problem(("guardrails", "monthlyBudget"), what, why, do)


@definition_rule("All prices are in one currency")
def prices_are_in_one_currency(definition: Definition) -> Iterator[Problem]:
    """Tidegate adds up the costs of stacks, and compares the sum with budgets."""
    first = None
    for index, plane in enumerate(definition.header.data_planes):
        for place, group in enumerate(plane.gpus):
            first = first or group.price
            if group.price and first and group.price.currency != first.currency:
                what = f"this price is in {group.price.currency}, but another is in {first.currency}"
                where = ("dataPlanes", index, "gpus", place, "price")
                yield definition.document.problem(where, what, do="Set all prices in one currency.")


@definition_rule("Models on the shares of one GPU fit into its memory")
def shares_of_a_gpu_promise_no_more_than_it_has(definition: Definition) -> Iterator[Problem]:
    """All shares of a GPU use its memory, and time-slicing does not stop a model from taking more than its share."""
    for index, plane in enumerate(definition.header.data_planes):
        stacks = [stack for stack in definition.stacks if stack.data_plane == plane]
        pools = [(stack, *at, devices.promised_bytes(stack, *at[1:])) for stack in stacks for at in stack.pools()]
        for group, sharing, memory in _shared_gpus(plane):
            sharers = [
                (promised, devices.most_replicas(pool), f"{stack.name} {server.name}/{pool.name}")
                for stack, _, server, pool, promised in pools
                if isinstance(pool.placement, SharedGpuPlacement) and pool.placement.kind == sharing.kind
                if pool.placement.product in (None, group.product)
            ]
            # MPS limits each client to its part.
            largest = memory // sharing.replicas if sharing.kind == "mps" else memory
            together = sorted((each for each, count, _ in sharers for _ in range(count)), reverse=True)
            gpus = group.nodes * group.per_node
            crowd = sum(together[: sharing.replicas])
            by = ", ".join(f"{name}: {count} × {gb(each)}" for each, count, name in sharers)
            why, where = f"Models can take, by capacity or footprints: {by}.", ("dataPlanes", index, "gpus")
            do = "Lower loading.capacity, set fewer replicas, or divide the GPU into fewer shares."
            if together and together[0] > largest:
                has = f"a share of {group.product} has {gb(largest)}"
                what = f'{has} in data plane "{plane.name}", but models can take {gb(together[0])} on one'
                yield definition.document.problem(where, what, why, do)
            elif len({each.product for each, _, _ in _shared_gpus(plane)}) == 1 and sum(together) > gpus * memory:
                has = f'data plane "{plane.name}" shares {gpus} × {group.product} of {gb(memory)}'
                yield definition.document.problem(where, f"{has}, but promises {gb(sum(together))} to models", why, do)
            elif crowd > memory:
                has = f'a {group.product} of data plane "{plane.name}" has {gb(memory)}'
                what = f"{has}, but models of pods that can share it take up to {gb(crowd)}"
                yield definition.document.problem(where, what, why, do, severity="advisory")


def _shared_gpus(plane: DataPlane) -> list[tuple[GpuNodes, GpuSharing, int]]:
    """Return the groups of nodes whose GPUs are shared and of a known size, with that size in bytes."""
    groups = [(group, group.sharing, gpu_bytes(group.product)) for group in plane.gpus]
    return [(group, sharing, memory) for group, sharing, memory in groups if sharing and memory]


@stack_rule("Models fit into a GPU that their pool may get")
def models_fit_into_a_gpu_of_their_plane(stack: Stack) -> Iterator[Problem]:
    """A pool without a product can get any GPU of the data plane. Models larger than all of them never load."""
    plane = stack.data_plane
    for path, server, pool in stack.pools():
        product = getattr(pool.placement, "product", None)
        known = [gpu_bytes(group.product) for group in plane.gpus if product in (None, group.product)]
        if isinstance(pool.placement, CpuPlacement | SharedGpuPlacement) or devices.memory_bytes(pool, plane.gpus):
            continue
        count = pool.placement.count if isinstance(pool.placement, WholeGpuPlacement) else 1
        largest = max((each for each in known if each), default=0) * count
        promised = devices.promised_bytes(stack, server, pool)
        if known and all(known) and promised > largest:
            what = f"models can take {gb(promised)} on a replica of {server.name}/{pool.name}"
            what = f'{what}, but no GPU of data plane "{plane.name}" that it can get has more than {gb(largest)}'
            yield stack.source.problem((*path, "loading"), what, do="Lower loading.capacity, or set a larger product.")


@stack_rule("Every model has at least one replica in production", "advisory")
def models_have_a_replica_in_production(stack: Stack) -> Iterator[Problem]:
    """Without a replica, requests to the models of a pool fail. In dev that can be meant, because it saves a GPU."""
    for path, server, pool in stack.pools() if stack.environment.production else ():
        if devices.most_replicas(pool) == 0:
            what = f"{server.name}/{pool.name} has no replica in production, so requests to its models fail"
            do = "Set replicas to 1 or more."
            yield stack.source.problem((*path, "replicas"), what, do=do)


@stack_rule("A wait for a load or a replica ends before the proxy's timeout", "advisory")
def waits_end_before_the_proxys_timeout(stack: Stack) -> Iterator[Problem]:
    """Otherwise the proxy ends the request of a caller without a deadline before it can respond `busy`."""
    most = stack.platform.proxy.timeouts.request_seconds
    for path, server, pool in stack.pools():
        if not isinstance(pool.loading, OnDemand):
            continue
        waits: list[tuple[str, Section, str]] = [("loading", pool.loading, "wait_seconds")]
        if isinstance(pool.autoscaling, QueueScaling) and not pool.autoscaling.min:
            waits.append(("autoscaling", pool.autoscaling, "wake_seconds"))
        for key, section, name in waits:
            if (seconds := getattr(section, name)) >= most:
                what = f"{to_camel(name)} {seconds} of {server.name}/{pool.name}"
                what = f"{what} is not less than {most}, the proxy's timeouts.requestSeconds"
                why = "Only callers that set a longer deadline wait that long, or get `busy`."
                where = (*path, key, to_camel(name)) if name in section.model_fields_set else (*path, key)
                do = f"Lower {to_camel(name)}, or raise proxy.timeouts.requestSeconds."
                yield stack.source.problem(where, what, why, do)


@stack_rule("Rollouts and drains wait long enough", "advisory")
def stops_and_starts_have_their_time(stack: Stack) -> Iterator[Problem]:
    """A gate must wait as long as one replica may take to start, and a drain as long as a request may take."""
    timeouts, most = stack.platform.proxy.timeouts, stack.platform.gate.timeout_seconds
    if timeouts.drain_seconds < timeouts.request_seconds:
        what = f"drainSeconds {timeouts.drain_seconds} is less than requestSeconds {timeouts.request_seconds}"
        why = "A replica of the proxy that stops would end requests that may take longer."
        do = f"Set drainSeconds to {timeouts.request_seconds} or more, or lower requestSeconds."
        yield stack.source.problem(("proxy", "timeouts", "drainSeconds"), what, why, do)
    for path, server, pool in sorted(stack.pools(), key=lambda each: each[2].startup_seconds)[-1:]:
        if (slowest := pool.startup_seconds) > most:
            what = f"startupSeconds {slowest} of {server.name}/{pool.name} is more than gate.timeoutSeconds {most}"
            why = "The gate of a rollout would fail while a replica may still start."
            do = f"Set gate.timeoutSeconds to {slowest} or more, or lower startupSeconds."
            yield stack.source.problem((*path, "startupSeconds"), what, why, do)


@stack_rule("A pool that scales to zero can be started by a request")
def pools_without_replicas_can_be_woken(stack: Stack) -> Iterator[Problem]:
    """Only a request starts the first replica, so no model of such a pool can be in memory before."""
    for path, server, pool in stack.pools():
        scaling = pool.autoscaling
        if not isinstance(scaling, QueueScaling) or scaling.min or not server.scales_by_queue:
            continue
        what = f"autoscaling.min is 0 in {server.name}/{pool.name}"
        where, do = (*path, "autoscaling", "min"), "Set min to 1"
        pinned = [model.name for model in stack.models_of(server, pool) if model.pinned]
        if not isinstance(pool.loading, OnDemand):
            why = "Its models are always in memory, so it needs a replica. Only on-demand pools can scale to zero."
            yield stack.source.problem(where, f"{what}, a preload pool", why, f"{do}.")
        elif pinned:
            what = f'{what}, but its model "{pinned[0]}" is pinned'
            why = "A pinned model is in memory even if no one calls it."
            yield stack.source.problem(where, what, why, f"{do}, or remove pinned from the model.")


@stack_rule("Prometheus scrapes the metrics that a pool scales by", "advisory")
def what_scales_by_queue_is_read_by_prometheus(stack: Stack) -> Iterator[Problem]:
    """KEDA queries Prometheus for metrics of servers and proxies."""
    for path, server, pool in stack.pools():
        scaling = pool.autoscaling
        needs_metrics = isinstance(scaling, QueueScaling) and server.scales_by_queue
        if scaling and needs_metrics and not stack.platform.monitoring.operator:
            what = f"{server.name}/{pool.name} scales on Prometheus metrics"
            what = f"{what}, but monitoring.operator is not true, so Tidegate does not configure scraping"
            why = "Unless your Prometheus scrapes servers and proxies anyway, the pool does not scale under load."
            if not scaling.min:
                why = "Unless your Prometheus scrapes servers and proxies, no request starts the pool from min 0."
            do = "Set monitoring: {operator: true}, or configure scraping yourself (docs/scaling.md)."
            yield stack.source.problem((*path, "autoscaling"), what, why, do)
        elif scaling and needs_metrics and (seconds := stack.platform.monitoring.interval_seconds) > _MOST_INTERVAL:
            what = f"{server.name}/{pool.name} scales on metrics that Prometheus scrapes every {seconds} s"
            why = "KEDA uses rates over one or two minutes. If they are missing at times, no replica is removed."
            do = f"Set it to {_MOST_INTERVAL} or less."
            yield stack.source.problem(("monitoring", "intervalSeconds"), what, why, do)


@definition_rule("One node has all GPUs of a replica")
def gpus_of_a_replica_are_in_one_node(definition: Definition) -> Iterator[Problem]:
    """A pod runs on one node, so all its GPUs must be in that node."""
    found: dict[tuple[Position | str | None, int], list[Problem]] = {}
    for stack in definition.stacks:
        for path, server, pool in stack.pools():
            if not isinstance(pool.placement, WholeGpuPlacement) or pool.placement.count == 1:
                continue
            count, product = pool.placement.count, pool.placement.product
            if product is not None and product not in {group.product for group in stack.data_plane.gpus}:
                continue  # Another rule reports it.
            groups = [group for group in stack.data_plane.gpus if product in (None, group.product)]
            room = sum(group.nodes * (group.whole // count) for group in groups)
            if devices.most_replicas(pool) > room:
                asks = f"{server.name}/{pool.name} needs {devices.most_replicas(pool)} × {count} GPUs in one node"
                what = f'{asks}, but data plane "{stack.data_plane.name}" has that {room} times'
                do = f"Set a smaller placement.count, or add nodes with perNode: {count} or more under gpus."
                problem = stack.source.problem((*path, "placement", "count"), what, do=do)
                found.setdefault((problem.where, count), []).append(problem)
    for first, *others in found.values():  # Pools that share a YAML alias, and planes, share the line.
        yield replace(first, why="\n".join(f"And {other.what}." for other in others))


@stack_rule("The largest request fits into one caller's share of memory", "advisory")
def a_body_fits_what_one_caller_may_hold(stack: Stack) -> Iterator[Problem]:
    """The proxy buffers some bodies whole, and limits the buffers of one caller to a share of its memory."""
    proxy = stack.platform.proxy
    most = int(byte_count(proxy.resources.memory) * ONE_CALLERS_SHARE)
    if byte_count(proxy.body_limit) > most and not stack.environment.local:
        what = f"bodyLimit {proxy.body_limit} is more than the {most >> 20}Mi that one caller can make the proxy hold"
        why = "The proxy refuses larger bodies of /predict, compressed gRPC messages and bodies of sequence models."
        do = f"Raise proxy.resources.memory of {proxy.resources.memory} (the share is 9/64 of it), or lower bodyLimit."
        where = ("proxy", "bodyLimit") if "body_limit" in proxy.model_fields_set else ("proxy", "resources", "memory")
        yield stack.source.problem(where, what, why, do)
