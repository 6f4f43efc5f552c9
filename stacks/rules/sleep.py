"""Models of vLLM that share a slice and sleep by turns: what one slice, and one container, can hold."""

from collections.abc import Iterator

from tidegate_contracts.openai import PROCESS_PORTS

from .. import devices
from ..definition.base import byte_count
from ..definition.openai import OpenaiServer, VllmSettings
from ..definition.pools import OnDemand, Pool
from ..definition.sleep import Sleep
from ..devices import gb
from ..load import PathInTree
from ..problems import Problem
from ..stack import Stack
from .rule import stack_rule


def _sleeping(stack: Stack) -> Iterator[tuple[PathInTree, OpenaiServer, Pool, OnDemand, Sleep]]:
    for path, server, pool in stack.pools():
        sleep = server.sleep_in(pool) if isinstance(server, OpenaiServer) else None
        if sleep is not None and isinstance(server, OpenaiServer) and isinstance(pool.loading, OnDemand):
            yield path, server, pool, pool.loading, sleep


@stack_rule("`openai.sleep` is for pools that load on demand")
def sleep_is_for_pools_that_load_on_demand(stack: Stack) -> Iterator[Problem]:
    """A preloaded model never sleeps."""
    for index, server in enumerate(stack.platform.servers):
        if not (isinstance(server, OpenaiServer) and isinstance(server.openai, VllmSettings) and server.openai.sleep):
            continue
        if not any(isinstance(pool.loading, OnDemand) for pool in server.pools):
            what = f"{server.name} has sleep, and no pool of it loads on demand: none of its models ever sleeps"
            do = "Take sleep away, or write loading: {mode: on-demand} in a pool."
            yield stack.source.problem(("servers", index, "openai", "sleep"), what, do=do)


@stack_rule("A model that sleeps has a footprint")
def models_that_sleep_say_what_they_take(stack: Stack) -> Iterator[Problem]:
    """vLLM fills its share of a slice with its cache, so it needs to know how large that share is."""
    for _, server, pool, _, _ in _sleeping(stack):
        for model in stack.models_of(server, pool):
            if model.footprint is None:
                what = f'model "{model.name}" shares the slice of {server.name}/{pool.name}, and has no footprint'
                do = "Say footprint: what vLLM may take of the slice for its weights, its cache and its work."
                yield stack.source.problem(stack.path_of(model), what, do=do)


@stack_rule("A model that sleeps has one version")
def models_that_sleep_have_one_version(stack: Stack) -> Iterator[Problem]:
    """A lease, and the wait for it, is for a model in one pool, where a process serves one version."""
    found = {
        model.name: (model, f"{server.name}/{pool.name}")
        for _, server, pool, _, _ in _sleeping(stack)
        for model in stack.models_of(server, pool)
    }
    for model, where in found.values():
        if len(model.versions) > 1:
            what = f'model "{model.name}" sleeps in {where}, and has {len(model.versions)} versions'
            do = "Name one version, and make a model of its own of another."
            yield stack.source.problem((*stack.path_of(model), "versions"), what, do=do)


@stack_rule("A pool whose models sleep does not scale")
def models_that_sleep_do_not_scale(stack: Stack) -> Iterator[Problem]:
    """Neither a processor nor what waits for one of them tells how busy a slice is whose models take turns."""
    for path, server, pool, _, _ in _sleeping(stack):
        if pool.autoscaling is not None:
            what = (
                f"models of {server.name}/{pool.name} sleep by turns, and such a pool follows no load, nor goes to zero"
            )
            yield stack.source.problem(
                (*path, "autoscaling"), what, do="Say replicas, with as many slices as are wanted."
            )


@stack_rule("The models that share a slice fit on it")
def models_that_share_a_slice_are_few(stack: Stack) -> Iterator[Problem]:
    """Each has a process of its own, which keeps some of the slice while it sleeps."""
    for path, server, pool, loading, sleep in _sleeping(stack):
        count = len(stack.models_of(server, pool))
        if count > len(PROCESS_PORTS):
            what = f"{server.name}/{pool.name} has {count} models, and at most {len(PROCESS_PORTS)} share a slice"
            yield stack.source.problem(path, what, do="Give some of them another pool.")
        memory, capacity = devices.memory_bytes(pool), devices.capacity_bytes(pool)
        kept = byte_count(sleep.kept) * count
        if memory is not None and capacity is not None and capacity <= memory < capacity + kept:
            most = f"{max(0, memory - kept) // 10**6}M"
            what = f"{server.name}/{pool.name} has {gb(memory)}, of which models that are awake may take {gb(capacity)}"
            what += f", and {count} that sleep keep {gb(kept)}"
            where = (*path, "loading", *(["capacity"] if loading.capacity else []))
            do = f"Say loading.capacity: {most} or less, or let fewer models share it."
            yield stack.source.problem(where, what, do=do)


@stack_rule("Sleeping models fit into the memory of their replica")
def sleeping_models_fit_the_memory_of_their_replica(stack: Stack) -> Iterator[Problem]:
    """Weights that sleep are in the memory of the container, beside all else that its processes take."""
    for path, server, pool, _, sleep in _sleeping(stack):
        asked = byte_count(sleep.host_memory) + byte_count(pool.shared_memory)
        if asked >= byte_count(pool.resources.memory):
            what = f"hostMemory {sleep.host_memory} of {server.name} and sharedMemory {pool.shared_memory}"
            what = f"{what} leave nothing of the {pool.resources.memory} of a replica of {server.name}/{pool.name}"
            do = "Raise resources.memory by some gigabytes for each model, or lower openai.sleep.hostMemory."
            yield stack.source.problem((*path, "resources", "memory"), what, do=do)


@stack_rule("A pool whose models sleep has one device, and a folder for each model")
def models_that_sleep_have_one_device_and_folders_of_their_own(stack: Stack) -> Iterator[Problem]:
    """One process a model on one device, which loads its own weights where they lie, as the policy sees them."""
    for path, server, pool, loading, _ in _sleeping(stack):
        name = f"{server.name}/{pool.name}, whose models sleep by turns,"
        if devices.devices_per_replica(pool.placement) != 1:
            do = "Place it on a slice, a share or one whole GPU."
            yield stack.source.problem((*path, "placement"), f"{name} is not on one device", do=do)
        if server.openai.source is not None:
            what = f"{name} has source {server.openai.source}, of which the eviction policy sees nothing"
            do = "Put each model into its folder of the repository, and take source away."
            yield stack.source.problem((*path[:2], "openai", "source"), what, do=do)
        if loading.staging is not None:
            what = f"{name} has staging, which is for files of Triton"
            do = "Take it away: weights that are wanted soon sleep in the memory of the host."
            yield stack.source.problem((*path, "loading", "staging"), what, do=do)


@stack_rule("Sleep was not tested on a GPU", "advisory")
def models_that_sleep_were_not_tried_on_a_gpu(stack: Stack) -> Iterator[Problem]:
    """What is untried is said where it is chosen."""
    for path, server, pool, _, _ in _sleeping(stack):
        what = f"models of {server.name}/{pool.name} sleep by turns, WHICH TIDEGATE WAS NEVER RUN WITH ON A GPU"
        why = "It holds to what vLLM publishes of its sleep mode, and was run beside a stand-in for it."
        do = "Try it with your models and your version of vLLM before anybody relies on it (docs/openai.md)."
        yield stack.source.problem((*path, "loading"), what, why, do)
