"""Rules of servers of kind openai: what one process of an engine can and cannot do."""

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
from .references import (
    API_SERVER_ENDPOINTS,
    models_name_servers_and_pools_that_exist,
    servers_that_reach_something_exist,
    suggestion,
)
from .rule import stack_rule

_PLACEHOLDER = re.compile(r"\$\(([A-Z_][A-Z0-9_]*)\)")
"""Capitals only, because in a shell command $(date) is a substitution."""
_OF_ENGINES, _OF_OTHERS = ("waiting_requests",), ("queue_milliseconds", "busy_percent")
"""The targets of queue scaling, by the kind of server."""


@stack_rule("A server of kind openai preloads its model")
def engines_preload_their_model(stack: Stack) -> Iterator[Problem]:
    """An engine loads its model when it starts, and no other."""
    for path, server, pool in _pools(stack):
        what = f"{server.name}/{pool.name} is of kind openai, whose engines do not"
        if isinstance(pool.loading, OnDemand):
            do = "Set loading: {mode: preload}, and add a pool for each model."
            yield stack.source.problem((*path, "loading"), f"{what} load models on demand", do=do)
        elif pool.loading != Preload(mode="preload"):
            where = (*path, "loading", "pollSeconds")
            yield stack.source.problem(where, f"{what} poll their repository", do="Remove pollSeconds.")


@stack_rule("A pool of kind openai serves exactly one model")
def engines_serve_one_model_a_pool(stack: Stack) -> Iterator[Problem]:
    is_lost = any(models_name_servers_and_pools_that_exist(stack))  # That model can be the one that seems missing.
    for path, server, pool in _pools(stack):
        names = [model.name for model in stack.models_of(server, pool)]
        if len(names) != 1 and not (is_lost and not names):
            served = f"has {len(names)} models, {', '.join(names)}" if names else "has no model"
            what = f"{server.name}/{pool.name} {served}, but a pool of kind openai serves exactly one"
            do = "Add a pool for each model."
            if not names:
                gone = f"pools: [{{name: {pool.name}, remove: true}}]" if server.pools[1:] else "remove: true"
                do = f"Set server: {server.name} and pool: {pool.name} in a model. If an environment has none, "
                do += f"add to its servers: {{name: {server.name}, {gone}}}."
            yield stack.source.problem(path, what, do=do)


@stack_rule("A pool of kind openai serves one version of its model")
def engines_serve_one_version_a_pool(stack: Stack) -> Iterator[Problem]:
    """A process of an engine serves one version of its model, so each version needs a separate pool."""
    for _, server, pool in _pools(stack):
        for model in stack.models_of(server, pool):
            here = model.pools(server.pools[0].name)[pool.name]
            if len(here) > 1:
                numbers = " and ".join(str(share.version) for share in here)
                what = f'versions {numbers} of model "{model.name}" are in {server.name}/{pool.name}'
                where = (*stack.path_of(model), "versions", model.versions.index(here[1]))
                do = "Set a separate pool for each version, next to its weight."
                yield stack.source.problem(where, f"{what}, but a pool of kind openai serves one", do=do)


@stack_rule("A model of kind openai names its versions by number")
def versions_of_engines_are_named(stack: Stack) -> Iterator[Problem]:
    """An engine does not resolve aliases to versions."""
    for server, model in _models(stack):
        if isinstance(server, OpenaiServer) and model.alias is not None:
            what = f'model "{model.name}" has an alias, but the engines of {server.name} cannot resolve it to a version'
            do = "Set versions instead. Set further names for requests in servedNames."
            yield stack.source.problem((*stack.path_of(model), "alias"), what, do=do)


@stack_rule("`servedNames`, and pools of versions, are only for servers of kind openai")
def only_engines_have_pools_for_versions_and_served_names(stack: Stack) -> Iterator[Problem]:
    """Other servers serve all versions of a model in one pool, and their callers use only the model's name."""
    for server, model in _models(stack):
        if isinstance(server, OpenaiServer):
            continue
        for number, share in enumerate(model.versions):
            if share.pool is not None:
                what = f'version {share.version} of model "{model.name}" has a separate pool'
                why = f"{server.name} is of kind {server.kind}, whose pools serve all versions of their models."
                do = "Set pool on the model, and remove it from the versions."
                yield stack.source.problem((*stack.path_of(model), "versions", number, "pool"), what, why, do)
        if model.served_names:
            what = f'model "{model.name}" has servedNames, but {server.name} is of kind {server.kind}'
            do = "Remove servedNames. Callers use the model's name."
            yield stack.source.problem((*stack.path_of(model), "servedNames"), what, do=do)


@stack_rule("Each name that requests use belongs to one model")
def names_that_calls_say_are_of_one_model(stack: Stack) -> Iterator[Problem]:
    """A request names a model, or a version of it, by one name. Clients of OpenAI's API name no server."""
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
                what = f'{name} is already {"the" if name == model.name else "a"} name of model "{model.name}"'
                yield stack.source.problem(where, what, do="Remove it, or set another name.")
            elif other.name != model.name:  # Another rule reports two models with one name.
                both = f'model "{model.name}" of {server.name} and of model "{other.name}" of {other.server}'
                why = f"Clients of OpenAI's API name no server. The first is at {stack.source.position(first)}."
                do = "Set another name for one of them."
                yield stack.source.problem(where, f"{name} is a name of {both}", why, do)


def _models(stack: Stack) -> Iterator[tuple[Server, Model]]:
    servers = {server.name: server for server in stack.platform.servers}
    yield from ((servers[model.server], model) for model in stack.platform.models if model.server in servers)


@stack_rule("`tensorParallelSize` is the number of GPUs of a replica")
def tensor_parallel_sizes_are_those_of_the_placement(stack: Stack) -> Iterator[Problem]:
    """An engine spreads its model over all devices of a replica. You would pay for an unused one."""
    found: dict[tuple[PathInTree, str, str, str], list[str]] = {}
    for path, server, pool in _pools(stack):
        size, there = server.openai.tensor_parallel_size, max(1, devices.devices_per_replica(pool.placement))
        if size != there:
            is_set = "tensor_parallel_size" in server.openai.model_fields_set
            where: PathInTree = (*path[:2], "openai", "tensorParallelSize") if is_set else (*path, "placement")
            do = f"Set openai.tensorParallelSize: {there}, or placement: {{kind: gpu, count: {size}}}."
            what = f"tensorParallelSize {size} of {server.name} does not fit"
            found.setdefault((where, what, count_of(there, "device"), do), []).append(f"{server.name}/{pool.name}")
    for (where, what, there_are, do), pools in found.items():
        yield stack.source.problem(where, f"{what}: replicas of {listed(pools)} have {there_are}", do=do)


@stack_rule("A pool scales by a metric that its kind of server has")
def engines_are_scaled_by_what_they_measure(stack: Stack) -> Iterator[Problem]:
    """Triton has a metric of the time in its queue. Engines can have one of the number of waiting requests."""
    for path, server, pool in stack.pools():
        scaling, name = pool.autoscaling, f"{server.name}/{pool.name}"
        engine = server.openai if isinstance(server, OpenaiServer) else None
        if not isinstance(scaling, QueueScaling):
            continue
        if not server.scales_by_queue:
            what = f"{name} cannot scale by queue: Tidegate has no metric of the requests that wait for its engine"
            why, do = "Tidegate knows no name of such a metric of TensorRT-LLM.", "Set replicas instead of autoscaling."
            if isinstance(engine, CustomSettings):
                why = "Tidegate scrapes a custom engine at openai.metricsPath, which is not set."
                do = "Set openai.metricsPath, and waitingMetric if its name differs from vLLM's. Or set replicas."
            yield stack.source.problem((*path, "autoscaling"), what, why, do)
            continue
        own, others = (_OF_ENGINES, _OF_OTHERS) if engine else (_OF_OTHERS, _OF_ENGINES)
        for key in others:
            if getattr(scaling, key) != QueueScaling.model_fields[key].default:
                what = f"{to_camel(key)} has no effect in {name}, a pool of kind {server.kind}"
                do = f"Remove it. Such a pool scales by {listed(map(to_camel, own))}."
                yield stack.source.problem((*path, "autoscaling", to_camel(key)), what, do=do)


@stack_rule("A pool of an engine has a placement", "advisory")
def engines_are_placed(stack: Stack) -> Iterator[Problem]:
    """Without a placement a pool has no GPU, and most engines exit without one."""
    for path, server, pool in _pools(stack):
        if "placement" in pool.model_fields_set:
            continue
        settings = server.openai
        if not isinstance(settings, CustomSettings) and not (
            isinstance(settings, DynamoSettings) and settings.worker == "mocker"
        ):
            what = f"{server.name}/{pool.name} has no GPU, because it has no placement"
            do = "Set placement: {kind: gpu}, or a slice of one, or {kind: cpu} if its image runs on CPUs."
            yield stack.source.problem(path, what, do=do)


@stack_rule("Every variable that a command uses is set")
def what_a_command_holds_is_filled_in(stack: Stack) -> Iterator[Problem]:
    """Kubernetes does not replace $(NAME) if the container has no variable of that name."""
    for index, server in _servers(stack):
        known = {"HOME", "USER", *COMMAND_VARIABLES, *server.variables.values(), *stack.platform.pods.environment}
        known -= {"CONTEXT_LENGTH"} if server.openai.context_length is None else set()
        words = [
            (key, *word) for key in ("command", "arguments") for word in enumerate(getattr(server.openai, key, ()))
        ]
        for key, number, word in words:
            for name in sorted({*_PLACEHOLDER.findall(word.replace("$$", ""))} - known):
                what = f"{server.name} has no variable {name}, so Kubernetes would not replace $({name})"
                do = f"{suggestion(name, known)} If you mean the literal text, write $$({name})."
                if name == "CONTEXT_LENGTH":
                    do = "Set openai.contextLength, or remove the argument."
                yield stack.source.problem(("servers", index, "openai", key, number), what, do=do)


@stack_rule("`openai.source` is for a server with one model")
def sources_are_of_one_model(stack: Stack) -> Iterator[Problem]:
    """Each pool of the server would load the same `source`, under another name."""
    for index, server in _servers(stack):
        models = [model for of, model in _models(stack) if of is server]
        names = [served_as(each.name, share.version) for each in models for share in each.versions]
        names += [each.name for each in models if not each.versions]
        if server.openai.source is not None and len(names) > 1:
            what = f"{server.name} has source {server.openai.source}, which all of {', '.join(names)} would load"
            do = "Put each model into its directory of the repository and remove source, or add a server for each."
            yield stack.source.problem(("servers", index, "openai", "source"), what, do=do)


@stack_rule("A server that downloads its model has an egress rule", "advisory")
def engines_that_download_have_a_way_out(stack: Stack) -> Iterator[Problem]:
    """An engine downloads a model that is not in the repository, and pods reach only what `network.reach` names."""
    for index, server in _servers(stack):
        source, key = server.openai.source, "source"
        if source is None and isinstance(server.openai, NimSettings) and server.openai.own_model:
            source, key = "the model of its image", "ownModel"
        if source is not None and not source.startswith("/") and not _reaches_addresses(stack, server):
            what = f"{server.name} loads {source}, but network.reach lets its pods reach no addresses"
            why = "The engine downloads its model each time that it starts, unless source is a directory."
            do = "Add the hub to network.reach, or put the model into the repository."
            yield stack.source.problem(("servers", index, "openai", key), what, why, do)


@stack_rule("Shared frontends have an egress rule for the Kubernetes API")
def shared_frontends_reach_the_api_server(stack: Stack) -> Iterator[Problem]:
    """Shared frontends and workers find each other through the Kubernetes API, which needs an egress rule."""
    is_lost = any(servers_that_reach_something_exist(stack))  # An entry can be meant for this server.
    for index, server in () if is_lost else _servers(stack):
        if server.frontends and not _reaches_addresses(stack, server):
            what = f"the frontends of {server.name} find workers through the Kubernetes API, but cannot reach it"
            why = "Network policies apply to endpoints of the Service `kubernetes`, not to its address and port 443."
            rule = f"{{name: kubernetes, server: {server.name}, cidr: ADDRESS/32, ports: [6443]}}"
            do = f"Add {rule} to network.reach, {API_SERVER_ENDPOINTS}"
            yield stack.source.problem(("servers", index, "openai", "frontends"), what, why, do)


@stack_rule("Shared frontends and pools have different names")
def shared_frontends_have_names_of_their_own(stack: Stack) -> Iterator[Problem]:
    """The frontends of server `a` have the name `a-frontends`, and so would its pool `frontends`."""
    for _, server in _servers(stack):
        name = f"{server.made_as}-{FRONTENDS}"
        for path, other, pool in stack.pools() if server.frontends else ():
            if name in ((made_as := f"{other.made_as}-{pool.made_as}"), f"{made_as}-headless"):
                what = f"pool {other.name}/{pool.name} and the frontends of {server.name} would share the name {name}"
                yield stack.source.problem((*path, "name"), what, do="Rename the pool.")


def _reaches_addresses(stack: Stack, server: Server) -> bool:
    reach = stack.platform.network.reach
    return any(each.cidr for each in reach if each.server == server.name or "servers" in each.by)


def _servers(stack: Stack) -> Iterator[tuple[int, OpenaiServer]]:
    for index, server in enumerate(stack.platform.servers):
        if isinstance(server, OpenaiServer):
            yield index, server


def _pools(stack: Stack) -> Iterator[tuple[PathInTree, OpenaiServer, Pool]]:
    for path, server, pool in stack.pools():
        if isinstance(server, OpenaiServer):
            yield path, server, pool
