"""Rules of names: unique if Kubernetes requires it, and short enough."""

from collections.abc import Iterator, Sequence
from itertools import product

from ..definition import Header
from ..definition.base import Renamable
from ..definition.proxy import PROXY, HttpRouteExposure, IngressExposure
from ..load import Document, PathInTree
from ..problems import Problem
from ..stack import Definition, Stack
from .rule import definition_rule, header_rule, stack_rule

# A StatefulSet's pods have the label controller-revision-hash, `<name>-<hash of up to 10 digits>`: the limit is 63.
LONGEST_POOL_OBJECT = 52
RESERVED = {PROXY: "the proxy", f"{PROXY}-headless": "the proxy"}


@header_rule("Each stack has a unique name")
def no_two_stacks_share_a_name(header: Header, document: Document) -> Iterator[Problem]:
    """Environment `a-b` on data plane `c`, and `a` on `b-c`, would be one stack."""
    seen: dict[str, tuple[str, str]] = {}
    named: dict[str, tuple[str, ...]] = {one.name: (one.name, *one.formerly) for one in header.environments}
    for index, plane in enumerate(header.data_planes):
        for place, environment in enumerate(plane.environments):
            where = ("dataPlanes", index, "environments", place)
            pairs = product(named.get(environment, (environment,)), (plane.name, *plane.formerly))
            for stack in ("-".join(pair) for pair in pairs):  # No other stack may use a former name either.
                other = seen.setdefault(stack, (environment, plane.name))
                if other != (environment, plane.name):
                    one = f'environment "{environment}" on data plane "{plane.name}"'
                    two = f'environment "{other[0]}" on data plane "{other[1]}"'
                    what = f"{one} and {two} both have the stack name {stack} (now or formerly)"
                    yield document.problem(where, what, do="Rename one of the environments or data planes.")
                    break
            if environment in plane.environments[:place]:
                what = f'data plane "{plane.name}" lists environment "{environment}" twice'
                yield document.problem(where, what, do="Remove one of them.")


@header_rule("No environment or data plane uses another's former name")
def former_names_of_environments_and_planes_are_free(header: Header, document: Document) -> Iterator[Problem]:
    """The state under a former name belongs to one of them, so no other has that name, or had it."""
    yield from _taken(document, ("environments",), "environment", header.environments)
    yield from _taken(document, ("dataPlanes",), "data plane", header.data_planes)


@stack_rule("No dataset, server or pool uses another's former name")
def former_names_are_free(stack: Stack) -> Iterator[Problem]:
    """Objects keep their first name, so nothing else of their kind has that name, or had it."""
    yield from _taken(stack.source, ("datasets",), "dataset", stack.platform.datasets)
    yield from _taken(stack.source, ("servers",), "server", stack.platform.servers)
    for index, server in enumerate(stack.platform.servers):
        yield from _taken(stack.source, ("servers", index, "pools"), "pool", server.pools)


def _taken(source: Document, path: PathInTree, kind: str, items: Sequence[Renamable]) -> Iterator[Problem]:
    seen = {item.name: f'{kind} "{item.name}" has that name now' for item in items}
    for index, item in enumerate(items):
        for place, name in enumerate(item.formerly):
            what = f'{kind} "{item.name}" was formerly "{name}", but {seen.get(name, "")}'
            do = "Set another name, or correct formerly. To swap two names, use a third one."
            if name in seen:
                yield source.problem((*path, index, "formerly", place), what, do=do)
            seen.setdefault(name, f'so was {kind} "{item.name}"')


@header_rule("Each data plane has its own kubeconfig context")
def no_two_data_planes_share_a_cluster(header: Header, document: Document) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for index, plane in enumerate(header.data_planes):
        context = plane.context_name
        if context in seen and seen[context] != plane.name:
            what = f'data planes "{seen[context]}" and "{plane.name}" have one context, {context}'
            why = "Both would write the same objects to the same cluster."
            do = "Set another context for one of them, or remove one."
            yield document.problem(("dataPlanes", index, "context"), what, why=why, do=do)
        seen.setdefault(context, plane.name)


@header_rule("Each environment of a cluster has its own namespace")
def no_two_environments_of_a_cluster_share_a_namespace(header: Header, document: Document) -> Iterator[Problem]:
    environments = {environment.name: environment for environment in header.environments}
    indexes = {environment.name: index for index, environment in enumerate(header.environments)}
    for plane in header.data_planes:
        seen: dict[str, str] = {}
        for name in plane.environments:
            if name not in environments:
                continue
            namespace = environments[name].namespace_name
            other = seen.setdefault(namespace, name)
            if other != name:
                both = f'environments "{other}" and "{name}"'
                what = f'{both} would share the namespace {namespace} on data plane "{plane.name}"'
                do = "Set another namespace for one of the environments."
                yield document.problem(("environments", indexes[name], "namespace"), what, do=do)


@stack_rule("An environment does not use the namespace of another program")
def a_namespace_belongs_to_its_environment(stack: Stack) -> Iterator[Problem]:
    """Tidegate labels the namespace of an environment, and admits only the callers under `network.callers`."""
    platform = stack.platform
    others = {platform.network.dns.namespace: "the cluster's DNS"}
    if platform.monitoring.operator:
        others[platform.monitoring.prometheus.namespace] = "Prometheus"
    if isinstance(platform.proxy.exposure, HttpRouteExposure):
        others[platform.proxy.exposure.gateway_namespace] = "the Gateway"
    if platform.domino is not None:
        others |= {platform.domino.platform_namespace: "Domino", platform.domino.compute_namespace: "Domino"}
    if platform.mesh is not None:
        others[platform.mesh.namespace] = "the mesh"
    if stack.namespace in others:
        what = f'environment "{stack.environment.name}" uses {stack.namespace}, the namespace of '
        what += others[stack.namespace]
        yield stack.source.problem((), what, do="Set another namespace for the environment.")


@stack_rule("No two pools have the same Kubernetes name")
def no_two_pools_become_one_object(stack: Stack) -> Iterator[Problem]:
    """Pool `c` of server `a-b` and pool `b-c` of server `a` would both be `a-b-c`."""
    seen: dict[str, tuple[str, str]] = {name: (owner, "") for name, owner in RESERVED.items()}
    for path, server, pool in stack.pools():
        made_as = f"{server.made_as}-{pool.made_as}"
        for name in (made_as, f"{made_as}-headless"):
            owner = f'pool "{pool.name}" of server "{server.name}"'
            at = (*path, "name")
            other, where = seen.setdefault(name, (owner, f"The first is at {stack.source.position(at)}."))
            if other != owner:
                what = f"{other} and {owner} would share the Kubernetes name {name}"
                yield stack.source.problem(at, what, where, do="Rename one of them.")
                break


@stack_rule("The name of server and pool is short enough for a StatefulSet")
def pool_names_leave_room_for_what_kubernetes_appends(stack: Stack) -> Iterator[Problem]:
    """Kubernetes appends a hash to a StatefulSet's name, and labels hold 63 characters."""
    for path, server, pool in stack.pools():
        name = f"{server.made_as}-{pool.made_as}"
        if len(name) > LONGEST_POOL_OBJECT:
            what = f"{name} has {len(name)} characters, but the limit for a StatefulSet is {LONGEST_POOL_OBJECT}"
            do = "Set a shorter name for the server or the pool."
            yield stack.source.problem((*path, "name"), what, do=do)


@definition_rule("No two environments of a cluster have the same host and path")
def no_two_stacks_of_a_cluster_share_a_host_and_path(definition: Definition) -> Iterator[Problem]:
    """Requests to a shared host and path would reach one environment or the other."""
    seen: dict[tuple[str, str, str], str] = {}
    for stack in definition.stacks:
        exposure = stack.platform.proxy.exposure
        if not isinstance(exposure, IngressExposure | HttpRouteExposure):
            continue
        other = seen.setdefault((stack.data_plane.name, exposure.host, exposure.path), stack.name)
        if other != stack.name:
            what = f"stacks {other} and {stack.name} are both exposed at {exposure.host}{exposure.path}"
            do = "Set another host or path for one of the environments."
            yield stack.source.problem(("proxy", "exposure", "host"), what, do=do)


@definition_rule("No two environments of a cluster create the same PersistentVolume")
def no_two_stacks_of_a_cluster_share_a_volume(definition: Definition) -> Iterator[Problem]:
    """PersistentVolumes are not namespaced: dataset `c` in namespace `a-b`, and `b-c` in `a`, would be one."""
    seen: dict[tuple[str, str], str] = {}
    for stack in definition.stacks:
        for index, dataset in enumerate(stack.platform.datasets):
            name = f"{stack.namespace}-{dataset.made_as}"
            other = seen.setdefault((stack.data_plane.name, name), stack.name)
            if other != stack.name:
                what = f"stacks {other} and {stack.name} would share the PersistentVolume {name}"
                do = "Rename a dataset or a namespace."
                yield stack.source.problem(("datasets", index, "name"), what, do=do)
