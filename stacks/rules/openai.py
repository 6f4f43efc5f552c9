"""Servers of OpenAI's API: what one process of an engine can, and what it cannot."""

from collections.abc import Iterator

from .. import devices
from ..definition.openai import OpenaiServer
from ..definition.pools import OnDemand, Preload, QueueScaling
from ..load import PathInTree
from ..problems import Problem
from ..stack import Stack


def engines_preload_their_model(stack: Stack) -> Iterator[Problem]:
    """An engine loads its model when it starts, and no other."""
    for path, server, pool in stack.pools():
        if isinstance(server, OpenaiServer) and isinstance(pool.loading, OnDemand):
            if server.sleep_in(pool) is None:
                what = f"{server.name}/{pool.name} is of kind openai, whose engines load no model on demand"
                do = "Write loading: {mode: preload}; or let models of engine vllm sleep by turns, by openai.sleep."
                yield stack.source.problem((*path, "loading"), what, do=do)
        elif isinstance(server, OpenaiServer) and pool.loading != Preload(mode="preload"):
            what = f"{server.name}/{pool.name} is of kind openai, whose engines look at no repository again"
            yield stack.source.problem((*path, "loading", "pollSeconds"), what, do="Leave pollSeconds out.")


def engines_serve_one_model_a_pool(stack: Stack) -> Iterator[Problem]:
    """A process of an engine serves one model, so a pool of the kind has one."""
    for path, server, pool in stack.pools():
        names = [model.name for model in stack.models_of(server, pool)]
        if isinstance(server, OpenaiServer) and server.sleep_in(pool) is None and len(names) != 1:
            served = f"has {len(names)} models, {', '.join(names)}" if names else "has no model"
            what = f"{server.name}/{pool.name} {served}, and a pool of kind openai serves exactly one"
            do = "Give each model a pool of its own." if names else "Name it as server and pool of one in models."
            yield stack.source.problem(path, what, do=do)


def engines_serve_one_version_a_pool(stack: Stack) -> Iterator[Problem]:
    """A process of an engine serves one version of its model, which the definition names where there are several."""
    for _, server, pool in stack.pools():
        for model in stack.models_of(server, pool) if isinstance(server, OpenaiServer) else ():
            place: PathInTree = ("models", stack.platform.models.index(model))
            where = f"a pool of kind openai, {server.name}/{pool.name}"
            if len(model.versions) > 1:
                what = f'model "{model.name}" has {len(model.versions)} versions in {where}, which serves one'
                do = "Name one version; for a second one beside it, make a second model with a pool of its own."
                yield stack.source.problem((*place, "versions"), what, do=do)
            for key, said in (("alias", model.alias), ("mirror", model.mirror)):
                if said is not None:
                    what = f'model "{model.name}" has {key}, and {where}, serves one version, which is named'
                    do = "Say versions, with one version of weight 100, or nothing for a model without versions."
                    yield stack.source.problem((*place, key), what, do=do)


def tensor_parallel_sizes_are_those_of_the_placement(stack: Stack) -> Iterator[Problem]:
    """A model is spread over the devices of one replica, all of them: one that it does not use is paid for nothing."""
    for path, server, pool in stack.pools():
        if not isinstance(server, OpenaiServer):
            continue
        size, there = server.openai.tensor_parallel_size, max(1, devices.devices_per_replica(pool.placement))
        if size != there:
            has = f"{server.name}/{pool.name} has {there} device{'s' * (there > 1)} a replica"
            what = f"tensorParallelSize {size} of {server.name} does not fit: {has}"
            do = f"Write openai.tensorParallelSize: {there}, or placement: {{kind: gpu, count: {size}}}."
            said = "tensor_parallel_size" in server.openai.model_fields_set
            where = (*path[:2], "openai", "tensorParallelSize") if said else (*path, "placement")
            yield stack.source.problem(where, what, do=do)


def engines_are_scaled_by_what_they_measure(stack: Stack) -> Iterator[Problem]:
    """The time in a queue is a series of Triton's; each engine has others."""
    for path, server, pool in stack.pools():
        if isinstance(server, OpenaiServer) and isinstance(pool.autoscaling, QueueScaling):
            what = f"{server.name}/{pool.name} is of kind openai, which autoscaling by queue does not know how to ask"
            yield stack.source.problem((*path, "autoscaling"), what, do="Scale by cpu, or say replicas.")


def engines_can_read_where_their_models_lie(stack: Stack) -> Iterator[Problem]:
    """Not every engine loads models straight from object storage."""
    for index, server, _ in stack.buckets():
        if isinstance(server, OpenaiServer) and not (server.openai.reads_object_storage or server.openai.source):
            what = f"engine {server.openai.engine} of {server.name} reads no model straight from object storage"
            do = "Name a dataset (a csi driver mounts a bucket), or take engine vllm or nim."
            yield stack.source.problem(("servers", index, "repository"), what, do=do)
