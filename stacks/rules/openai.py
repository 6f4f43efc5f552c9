"""Servers of OpenAI's API: what one process of an engine can, and what it cannot."""

import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel
from tidegate_contracts.openai import served_as

from .. import devices
from ..definition.models import Model
from ..definition.openai import COMMAND_VARIABLES, FRONTENDS, CustomSettings, DynamoSettings, NimSettings, OpenaiServer
from ..definition.pools import OnDemand, Pool, Preload, QueueScaling
from ..definition.servers import Server
from ..load import PathInTree
from ..problems import Problem, count_of, listed
from ..stack import Stack
from .references import models_name_servers_and_pools_that_exist, servers_that_reach_something_exist, suggestion
from .rule import stack_rule

_PLACEHOLDER = re.compile(r"\$\(([A-Z_][A-Z0-9_]*)\)")
"""Capitals alone: in words of a shell, $(date) is its own."""
_OF_ENGINES, _OF_OTHERS = ("waiting_requests",), ("queue_milliseconds", "busy_percent")
"""What pools that scale by queue aim at, by the kind of their server."""


@stack_rule("A server of kind openai preloads its model")
def engines_preload_their_model(stack: Stack) -> Iterator[Problem]:
    """An engine loads its model when it starts, and no other."""
    for path, server, pool in _pools(stack):
        what = f"{server.name}/{pool.name} is of kind openai, whose engines"
        if isinstance(pool.loading, OnDemand):
            do = "Write loading: {mode: preload}, and give each model a pool of its own."
            yield stack.source.problem((*path, "loading"), f"{what} load no model on demand", do=do)
        elif pool.loading != Preload(mode="preload"):
            where = (*path, "loading", "pollSeconds")
            yield stack.source.problem(where, f"{what} look at no repository again", do="Leave pollSeconds out.")


@stack_rule("A pool of kind openai serves exactly one model")
def engines_serve_one_model_a_pool(stack: Stack) -> Iterator[Problem]:
    """A process of an engine serves one model, so a pool of the kind has one."""
    is_lost = any(models_name_servers_and_pools_that_exist(stack))  # it may be the one that seems to be lacking
    for path, server, pool in _pools(stack):
        names = [model.name for model in stack.models_of(server, pool)]
        if len(names) != 1 and not (is_lost and not names):
            served = f"has {len(names)} models, {', '.join(names)}" if names else "has no model"
            what = f"{server.name}/{pool.name} {served}, and a pool of kind openai serves exactly one"
            do = "Give each model a pool of its own."
            if not names:
                gone = f"pools: [{{name: {pool.name}, remove: true}}]" if server.pools[1:] else "remove: true"
                away = f"takes it away, in its servers: {{name: {server.name}, {gone}}}"
                do = f"Name it as server and pool of one in models; an environment that has none {away}."
            yield stack.source.problem(path, what, do=do)


@stack_rule("A pool of kind openai serves one version of its model")
def engines_serve_one_version_a_pool(stack: Stack) -> Iterator[Problem]:
    """A process of an engine serves one version of its model, so each version has a pool of its own."""
    for _, server, pool in _pools(stack):
        for model in stack.models_of(server, pool):
            here = model.pools(server.pools[0].name)[pool.name]
            if len(here) > 1:
                numbers = " and ".join(str(share.version) for share in here)
                what = f'versions {numbers} of model "{model.name}" are in {server.name}/{pool.name}'
                where = (*stack.path_of(model), "versions", model.versions.index(here[1]))
                do = "Give each version a pool of its own: write pool beside its weight."
                yield stack.source.problem(where, f"{what}, and a pool of kind openai serves one", do=do)


@stack_rule("A model of kind openai names its versions by number")
def versions_of_engines_are_named(stack: Stack) -> Iterator[Problem]:
    """Nothing at an engine tells what an alias stands for."""
    for server, model in _models(stack):
        if isinstance(server, OpenaiServer) and model.alias is not None:
            what = f'model "{model.name}" has an alias, and nothing at the engines of {server.name} tells its version'
            do = "Say versions. Names by which calls know the model stand in servedNames."
            yield stack.source.problem((*stack.path_of(model), "alias"), what, do=do)


@stack_rule("`servedNames`, and pools of versions, are only for servers of kind openai")
def only_engines_have_pools_for_versions_and_served_names(stack: Stack) -> Iterator[Problem]:
    """Other servers serve all versions of a model in one pool, and are called by its name alone."""
    for server, model in _models(stack):
        if isinstance(server, OpenaiServer):
            continue
        for number, share in enumerate(model.versions):
            if share.pool is not None:
                what = f'version {share.version} of model "{model.name}" has a pool of its own'
                why = f"{server.name} is of kind {server.kind}, whose pools serve all versions of their models."
                do = "Say pool of the model, and none of its versions."
                yield stack.source.problem((*stack.path_of(model), "versions", number, "pool"), what, why, do)
        if model.served_names:
            what = f'model "{model.name}" has servedNames, and {server.name} is of kind {server.kind}'
            do = "Take them away: its models are called by their names."
            yield stack.source.problem((*stack.path_of(model), "servedNames"), what, do=do)


@stack_rule("Each name that requests use belongs to one model")
def names_that_calls_say_are_of_one_model(stack: Stack) -> Iterator[Problem]:
    """A call names its model, or a version of it, by one name; and clients of OpenAI's API name no server."""
    taken: dict[str, tuple[Model, tuple[str | int, ...]]] = {}
    for server, model in _models(stack):
        if not isinstance(server, OpenaiServer):
            continue
        versions = [(("versions", n), served_as(model.name, each.version)) for n, each in enumerate(model.versions)]
        names = [(("servedNames", n), name) for n, name in enumerate(model.served_names)]
        for key, name in [(("name",), model.name), *versions, *names]:
            where = (*stack.path_of(model), *key)
            other, first = taken.setdefault(name, (model, where))
            if other is model and where != first:
                what = f'{name} is {"the" if name == model.name else "a"} name of model "{model.name}" anyway'
                yield stack.source.problem(where, what, do="Choose another name.")
            elif other.name != model.name:  # two models of one name are told of as such
                both = f'model "{model.name}" of {server.name}, and of "{other.name}" of {other.server}'
                why = f"Clients of OpenAI's API name no server. The first is at {stack.source.position(first)}."
                do = "Choose another name for one of them."
                yield stack.source.problem(where, f"{name} is a name of {both}", why, do)


def _models(stack: Stack) -> Iterator[tuple[Server, Model]]:
    servers = {server.name: server for server in stack.platform.servers}
    yield from ((servers[model.server], model) for model in stack.platform.models if model.server in servers)


@stack_rule("`tensorParallelSize` is the number of GPUs of a replica")
def tensor_parallel_sizes_are_those_of_the_placement(stack: Stack) -> Iterator[Problem]:
    """A model is spread over the devices of one replica, all of them: one that it does not use is paid for nothing."""
    found: dict[tuple[PathInTree, str, str, str], list[str]] = {}
    for path, server, pool in _pools(stack):
        size, there = server.openai.tensor_parallel_size, max(1, devices.devices_per_replica(pool.placement))
        if size != there:
            said = "tensor_parallel_size" in server.openai.model_fields_set
            where: PathInTree = (*path[:2], "openai", "tensorParallelSize") if said else (*path, "placement")
            do = f"Write openai.tensorParallelSize: {there}, or placement: {{kind: gpu, count: {size}}}."
            what = f"tensorParallelSize {size} of {server.name} does not fit"
            found.setdefault((where, what, count_of(there, "device"), do), []).append(f"{server.name}/{pool.name}")
    for (where, what, there_are, do), pools in found.items():
        yield stack.source.problem(where, f"{what}: replicas of {listed(pools)} have {there_are}", do=do)


@stack_rule("A pool scales by a metric that its kind of server has")
def engines_are_scaled_by_what_they_measure(stack: Stack) -> Iterator[Problem]:
    """The time in a queue is a series of Triton's; an engine tells how many requests wait for it, if anything."""
    for path, server, pool in stack.pools():
        scaling, name = pool.autoscaling, f"{server.name}/{pool.name}"
        engine = server.openai if isinstance(server, OpenaiServer) else None
        if not isinstance(scaling, QueueScaling):
            continue
        if not server.scales_by_queue:
            what = f"{name} scales by queue, and nothing is known of how many requests wait for its engine"
            why, do = "TensorRT-LLM's metrics have that under no name that is known here.", "Say replicas."
            if isinstance(engine, CustomSettings):
                why = "The metrics of an engine of one's own are read at metricsPath, and there is none."
                do = "Say openai.metricsPath, and waitingMetric where it is not vLLM's; or replicas."
            yield stack.source.problem((*path, "autoscaling"), what, why, do)
            continue
        own, others = (_OF_ENGINES, _OF_OTHERS) if engine else (_OF_OTHERS, _OF_ENGINES)
        for key in others:
            if getattr(scaling, key) != QueueScaling.model_fields[key].default:
                what = f"{to_camel(key)} of {name} says nothing to a pool of kind {server.kind}"
                do = f"Take it away: such a pool scales by {listed(map(to_camel, own))}."
                yield stack.source.problem((*path, "autoscaling", to_camel(key)), what, do=do)


@stack_rule("A pool of an engine says what it is placed on", "advisory")
def engines_are_placed(stack: Stack) -> Iterator[Problem]:
    """Without a placement a pool has no GPU, and most engines end where there is none."""
    for path, server, pool in _pools(stack):
        if "placement" in pool.model_fields_set:
            continue
        settings = server.openai
        if not isinstance(settings, CustomSettings) and not (
            isinstance(settings, DynamoSettings) and settings.worker == "mocker"
        ):
            what = f"{server.name}/{pool.name} has no GPU, because it has no placement"
            do = "Say placement: {kind: gpu}, or a slice of one; or {kind: cpu} if its image is built for processors."
            yield stack.source.problem(path, what, do=do)


@stack_rule("Every variable that a command uses is set")
def what_a_command_holds_is_filled_in(stack: Stack) -> Iterator[Problem]:
    """Kubernetes leaves $(NAME) as it is where the container has no variable of that name."""
    for index, server in _servers(stack):
        known = {"HOME", "USER", *COMMAND_VARIABLES, *server.variables.values(), *stack.platform.pods.environment}
        known -= {"CONTEXT_LENGTH"} if server.openai.context_length is None else set()
        words = [
            (key, *word) for key in ("command", "arguments") for word in enumerate(getattr(server.openai, key, ()))
        ]
        for key, number, word in words:
            for name in sorted({*_PLACEHOLDER.findall(word.replace("$$", ""))} - known):
                what = f"no variable of {server.name} is called {name}, and $({name}) would stay as it is"
                do = f"{suggestion(name, known)} As it is it may stay by $$({name})."
                if name == "CONTEXT_LENGTH":
                    do = "Say openai.contextLength, or take the argument away."
                yield stack.source.problem(("servers", index, "openai", key, number), what, do=do)


@stack_rule("`openai.source` is for a server with one model")
def sources_are_of_one_model(stack: Stack) -> Iterator[Problem]:
    """What a server's `source` names, each of its pools would load, under another name."""
    for index, server in _servers(stack):
        models = [model for of, model in _models(stack) if of is server]
        names = [served_as(each.name, share.version) for each in models for share in each.versions]
        names += [each.name for each in models if not each.versions]
        if server.openai.source is not None and len(names) > 1:
            what = f"{server.name} has source {server.openai.source}, which all of {', '.join(names)} would load"
            do = "Put each into its folder of the repository, and take source away; or give each a server of its own."
            yield stack.source.problem(("servers", index, "openai", "source"), what, do=do)


@stack_rule("A server that downloads its model has an egress rule", "advisory")
def engines_that_download_have_a_way_out(stack: Stack) -> Iterator[Problem]:
    """What is not in the repository comes from a hub, and nothing lets pods out that `network.reach` does not name."""
    for index, server in _servers(stack):
        source, key = server.openai.source, "source"
        if source is None and isinstance(server.openai, NimSettings) and server.openai.own_model:
            source, key = "what its image names", "ownModel"
        if source is not None and not source.startswith("/") and not _reaches_addresses(stack, server):
            what = f"{server.name} loads {source}, and network.reach lets its pods reach no addresses"
            why = "An engine downloads what is no folder each time that it starts."
            do = "Add the hub to network.reach; or put the model into the repository."
            yield stack.source.problem(("servers", index, "openai", key), what, why, do)


@stack_rule("Shared frontends have an egress rule for the Kubernetes API")
def shared_frontends_reach_the_api_server(stack: Stack) -> Iterator[Problem]:
    """Frontends and workers that find each other through Kubernetes ask its API, which no policy lets them reach."""
    is_lost = any(servers_that_reach_something_exist(stack))  # a way may be meant for it
    for index, server in () if is_lost else _servers(stack):
        if server.frontends and not _reaches_addresses(stack, server):
            what = f"{server.name} has frontends, which find workers through Kubernetes' API, and may not reach that"
            why = "Policies count behind the Service `kubernetes`: its own address, and its port 443, are not enough."
            way = f"{{name: kubernetes, server: {server.name}, cidr: ADDRESS/32, ports: [6443]}}"
            do = f"Add {way} to network.reach, both as `kubectl get endpointslices kubernetes -n default` has them."
            yield stack.source.problem(("servers", index, "openai", "frontends"), what, why, do)


@stack_rule("Shared frontends and pools have different names")
def shared_frontends_have_names_of_their_own(stack: Stack) -> Iterator[Problem]:
    """The frontends of server `a` are `a-frontends`, as its pool `frontends` would be."""
    for _, server in _servers(stack):
        name = f"{server.made_as}-{FRONTENDS}"
        for path, other, pool in stack.pools() if server.frontends else ():
            if name in ((made_as := f"{other.made_as}-{pool.made_as}"), f"{made_as}-headless"):
                what = f"pool {other.name}/{pool.name} and the frontends of {server.name} would share the name {name}"
                yield stack.source.problem((*path, "name"), what, do="Rename the pool.")


def _reaches_addresses(stack: Stack, server: Server) -> bool:
    ways = (each for each in stack.platform.network.reach if each.server == server.name or "servers" in each.by)
    return any(each.cidr for each in ways)


def _servers(stack: Stack) -> Iterator[tuple[int, OpenaiServer]]:
    for index, server in enumerate(stack.platform.servers):
        if isinstance(server, OpenaiServer):
            yield index, server


def _pools(stack: Stack) -> Iterator[tuple[PathInTree, OpenaiServer, Pool]]:
    for path, server, pool in stack.pools():
        if isinstance(server, OpenaiServer):
            yield path, server, pool
