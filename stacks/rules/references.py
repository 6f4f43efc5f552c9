"""Rules of references: the items that a key names must exist, and fit."""

import fnmatch
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from ..definition import Header
from ..definition.base import did_you_mean, nearest
from ..definition.datasets import ClaimDataset, DatasetRepository
from ..definition.images import POLICY_IMAGE, PROXY_IMAGE
from ..definition.policies import SHIPPED
from ..definition.pools import OnDemand
from ..load import Document, PathInTree
from ..problems import Problem
from ..stack import Definition, Stack
from .rule import definition_rule, header_rule, stack_rule

_MOST_NAMES = 8
API_SERVER_ENDPOINTS = "with the addresses and ports that `kubectl get endpointslices kubernetes -n default` shows."
_CLOUD_OF_SCHEME = {"s3": "aws", "gs": "gcp", "as": "azure"}
# The variable that Triton reads if it has no identity. Google's credentials are a file.
_KEY_OF_CLOUD = {"aws": "AWS_SECRET_ACCESS_KEY", "azure": "AZURE_STORAGE_KEY"}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name: the nearest known name, and all names, or the few that are most alike."""
    names = sorted(known)
    guess = did_you_mean(nearest(name.strip("*?"), names))
    if len(names) > _MOST_NAMES:
        alike = get_close_matches(name, names, n=_MOST_NAMES, cutoff=0)
        return f"{guess}There are {len(names)}, such as {', '.join(sorted(alike))}."
    return guess + (f"There are: {', '.join(names)}." if names else "There are none.")


def unknown(source: Document, path: PathInTree, what: str, name: str, known: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem if a name is not known. In its message, `what` precedes the name."""
    if name not in known:
        yield source.problem(path, f'{what}, "{name}"', do=suggestion(name, known))


def matches(name: str, globs: Iterable[str]) -> bool:
    """Return whether one of these globs matches a name."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


@header_rule("Data planes name environments that exist")
def data_planes_name_environments_that_exist(header: Header, document: Document) -> Iterator[Problem]:
    known = {environment.name for environment in header.environments}
    for index, plane in enumerate(header.data_planes):
        for place, name in enumerate(plane.environments):
            path = ("dataPlanes", index, "environments", place)
            yield from unknown(document, path, f'data plane "{plane.name}" hosts an unknown environment', name, known)


@header_rule("The canary is a data plane of the first wave")
def canaries_are_planes_of_the_first_wave(header: Header, document: Document) -> Iterator[Problem]:
    """A rollout starts at the canary, so it must be in the first wave."""
    for index, environment in enumerate(header.environments):
        canary = environment.rollout.canary
        planes = [plane for plane in header.data_planes if environment.name in plane.environments]
        if canary is None or not planes:
            continue
        first = min(plane.wave for plane in planes)
        wave = next((plane.wave for plane in planes if plane.name == canary), None)
        where = ("environments", index, "rollout", "canary")
        if wave is None:
            what = f'environment "{environment.name}" is not on its canary, "{canary}"'
            do = suggestion(canary, [plane.name for plane in planes])
            yield document.problem(where, what, do=do, at="value")
        elif wave > first:
            what = f'the canary "{canary}" is in wave {wave}, but wave {first} comes before it'
            do = f"Set canary to a data plane of wave {first}, or set wave: {first} for {canary}."
            yield document.problem(where, what, do=do, at="value")
        elif len(planes) == 1:
            what = f'canary has no effect: environment "{environment.name}" is only on data plane "{canary}"'
            yield document.problem(where, what, do="Remove it.", at="value", severity="advisory")


@definition_rule("Every environment is on a data plane", "advisory")
def every_environment_lives_somewhere(definition: Definition) -> Iterator[Problem]:
    hosted = {name for plane in definition.header.data_planes for name in plane.environments}
    for index, environment in enumerate(definition.header.environments):
        if environment.name not in hosted:
            what = f'environment "{environment.name}" is on no data plane, so it has no stack'
            do = "Add it to the environments of a data plane."
            yield definition.document.problem(("environments", index), what, do=do)


@stack_rule("Every image that is used is under `images`")
def images_that_are_used_are_named(stack: Stack) -> Iterator[Problem]:
    known = {image.name for image in stack.platform.images}
    for index, server in enumerate(stack.platform.servers):
        what = f'server "{server.name}" uses an image that is not in images'
        yield from unknown(stack.source, ("servers", index, "image"), what, server.image, known)
    on_demand = any(isinstance(pool.loading, OnDemand) for _, _, pool in stack.pools())
    for name in (PROXY_IMAGE, *([POLICY_IMAGE] if on_demand else [])):
        if name not in known:
            needs = "on-demand pools need" if name == POLICY_IMAGE else "every environment needs"
            what = f'images has no "{name}", which {needs}'
            yield stack.source.problem(("images",), what, do=f"Add an image with name: {name}.")


@stack_rule("Pools name eviction policies that exist")
def policies_that_pools_name_exist(stack: Stack) -> Iterator[Problem]:
    known = {*SHIPPED, *(policy.name for policy in stack.platform.eviction_policies)}
    for path, server, pool in stack.pools():
        if isinstance(pool.loading, OnDemand):
            what = f"{server.name}/{pool.name} uses an unknown eviction policy"
            yield from unknown(stack.source, (*path, "loading", "policy"), what, pool.loading.policy, known)


@stack_rule("Repositories name datasets that exist")
def repositories_name_datasets_that_exist(stack: Stack) -> Iterator[Problem]:
    known = {dataset.name for dataset in stack.platform.datasets}
    for index, server in enumerate(stack.platform.servers):
        if isinstance(server.repository, DatasetRepository):
            what, path = f'server "{server.name}" reads an unknown dataset', ("servers", index, "repository", "dataset")
            yield from unknown(stack.source, path, what, server.repository.dataset, known)


@stack_rule("Models name servers and pools that exist")
def models_name_servers_and_pools_that_exist(stack: Stack) -> Iterator[Problem]:
    servers = {server.name: server for server in stack.platform.servers}
    for index, model in enumerate(stack.platform.models):
        what = f'model "{model.name}" is on an unknown server'
        yield from unknown(stack.source, ("models", index, "server"), what, model.server, servers)
        pools = [pool.name for pool in servers[model.server].pools] if model.server in servers else []
        if model.pool is not None and pools:
            what = f'model "{model.name}" is on an unknown pool of server "{model.server}"'
            yield from unknown(stack.source, ("models", index, "pool"), what, model.pool, pools)
        elif len(pools) > 1 and not (model.versions and all(share.pool for share in model.versions)):
            what = f'model "{model.name}" has no pool, but server "{model.server}" has {len(pools)}'
            do = f"Set pool to one of: {', '.join(pools)}."
            yield stack.source.problem(("models", index), what, do=do)
        for number, share in enumerate(model.versions if pools else ()):
            if share.pool is not None:
                version = f'version {share.version} of model "{model.name}"'
                what = f'{version} is on an unknown pool of server "{model.server}"'
                yield from unknown(stack.source, ("models", index, "versions", number, "pool"), what, share.pool, pools)


@stack_rule("Egress rules name servers that exist")
def servers_that_reach_something_exist(stack: Stack) -> Iterator[Problem]:
    known = {server.name for server in stack.platform.servers}
    for index, reach in enumerate(stack.platform.network.reach):
        if reach.server is not None:
            path, what = ("network", "reach", index, "server"), f'"{reach.name}" is for an unknown server'
            yield from unknown(stack.source, path, what, reach.server, known)


@stack_rule("Access rules name servers and models that exist", "advisory")
def access_rules_name_servers_and_models_that_exist(stack: Stack) -> Iterator[Problem]:
    known = {
        "servers": [server.name for server in stack.platform.servers],
        "models": [model.name for model in stack.platform.models],
    }
    for index, rule in enumerate(stack.platform.proxy.access):
        for key, globs in (("servers", rule.servers), ("models", rule.models)):
            for place, glob in enumerate(globs):
                if known[key] and not fnmatch.filter(known[key], glob):
                    what = f'access rule "{rule.name}" names {key} that do not exist, "{glob}"'
                    do = suggestion(glob, known[key])
                    yield stack.source.problem(("proxy", "access", index, key, place), what, do=do)


@stack_rule("Access rules name sources of `proxy.auth`")
def access_rules_name_sources_that_are_believed(stack: Stack) -> Iterator[Problem]:
    sources = stack.platform.proxy.auth.sources
    for index, rule in enumerate(stack.platform.proxy.access):
        if rule.source is not None and rule.source not in sources:
            what = f'access rule "{rule.name}" is for callers of {rule.source}, which proxy.auth does not trust'
            do = suggestion(rule.source, sources)
            yield stack.source.problem(("proxy", "access", index, "source"), what, do=do)


@stack_rule("A dataset of kind claim names a claim that Tidegate does not create")
def claims_that_exist_are_none_of_ours(stack: Stack) -> Iterator[Problem]:
    made = {item.made_as: item.name for item in stack.platform.datasets if not isinstance(item, ClaimDataset)}
    for index, dataset in enumerate(stack.platform.datasets):
        if isinstance(dataset, ClaimDataset) and dataset.claim_name in made:
            claim = dataset.claim_name
            what = f'dataset "{dataset.name}" uses claim {claim}, which Tidegate creates for dataset "{made[claim]}"'
            do = f'Set repository.dataset of the servers to "{made[claim]}".'
            yield stack.source.problem(("datasets", index, "claimName"), what, do=do)


@stack_rule("A server's cloud identity can read its object store")
def cloud_identity_fits_the_object_store(stack: Stack) -> Iterator[Problem]:
    """An AWS role cannot read a Google bucket."""
    needed = [
        (index, server, _CLOUD_OF_SCHEME[scheme], f"{scheme}://", ("repository", "url"))
        for index, server, bucket in stack.buckets()
        if (scheme := bucket.url.partition(":")[0])
    ] + [
        (index, server, dataset.identity_of_pods, f'dataset "{dataset.name}"', ("repository", "dataset"))
        for index, server, dataset in stack.mounted()
        if dataset.identity_of_pods
    ]
    for index, server, cloud, what_is_read, place in needed:
        key = _KEY_OF_CLOUD.get(cloud) if place[-1] == "url" else None
        if server.identity is None and key not in server.variables.values():
            what = f'server "{server.name}" reads {what_is_read} without an identity'
            why = "It can read only a public bucket, or use credentials that the node gives to every pod."
            if cloud == "gcp":
                why = "It can read only a public bucket, or one granted to the Kubernetes service account itself."
            do = f"Add identity with cloud: {cloud}" + (f", or {key} to secretEnvironment." if key else ".")
            yield stack.source.problem(("servers", index, *place), what, why, do, severity="advisory")
        elif server.identity is not None and server.identity.cloud != cloud:
            what = f'server "{server.name}" reads {what_is_read} with an identity of {server.identity.cloud}'
            do = f"Set an identity with cloud: {cloud}."
            yield stack.source.problem(("servers", index, "identity", "cloud"), what, do=do)


@stack_rule("`dominoPrincipal` needs the `domino` section")
def domino_principals_need_the_domino_integration(stack: Stack) -> Iterator[Problem]:
    """The proxy calls Domino's principal endpoint in the namespace that `domino` names."""
    if stack.platform.proxy.auth.domino_principal and stack.platform.domino is None:
        what = "dominoPrincipal is true, but there is no domino section"
        do = "Add domino: {}, which has defaults, or remove dominoPrincipal."
        yield stack.source.problem(("proxy", "auth", "dominoPrincipal"), what, do=do)


@stack_rule("Dashboards have the recording rules that they show")
def dashboards_have_what_they_show(stack: Stack) -> Iterator[Problem]:
    """Dashboards show metrics that PodMonitors scrape, and the platform's dashboard shows recording rules."""
    monitoring = stack.platform.monitoring
    if not monitoring.dashboards or (monitoring.operator and monitoring.rules):
        return
    lacking = "rules: false removes their recording rules" if monitoring.operator else "operator is not true"
    what = f"the dashboards would be empty or missing: {lacking}"
    do = "Set operator: true and remove rules: false. Or remove dashboards, and run `tidegate dashboards` to get files."
    yield stack.source.problem(("monitoring", "dashboards"), what, do=do)


@stack_rule("Registry mirrors are for registries that images come from", "advisory")
def mirrors_are_of_registries_that_are_used(stack: Stack) -> Iterator[Problem]:
    """Nodes never use a mirror of another registry. If its name has a typo, a closed network cannot pull images."""
    hosts = {image.registry for image in stack.platform.images}
    for host in stack.data_plane.registries:
        if host not in hosts:
            what = f'data plane "{stack.data_plane.name}" has a mirror of {host}, but no image comes from there'
            do = suggestion(host, hosts)
            yield stack.source.problem(("images",), what, do=do)
