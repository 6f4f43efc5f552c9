"""Rules of storage: separate repositories, volumes that nodes can mount, and space for copies."""

import re
from collections.abc import Iterator

from tidegate_contracts.eviction import STAGED_SHARE

from .. import devices
from ..definition.base import byte_count
from ..definition.datasets import GCS_FUSE, CsiDataset, EfsDataset, NfsDataset, ObjectStoreRepository
from ..definition.pools import OnDemand
from ..devices import gb
from ..problems import Problem, Severity
from ..stack import Definition, Stack
from .rule import definition_rule, stack_rule

_REGION = re.compile(
    r"(?<![a-z0-9])(?:af|ap|ca|cn|eu|il|me|mx|sa|us)(?:-gov|-iso[a-z]?)?-(?:north|south|east|west|central){1,2}-[0-9](?![0-9])"
)
"""A region of AWS, as a cluster's ARN and an EFS host name contain it."""


@stack_rule("A preload pool does not load another server's models", "advisory")
def preloaded_repositories_hold_nothing_else(stack: Stack) -> Iterator[Problem]:
    """A preload pool loads every model in its repository, including those of other servers."""
    servers = stack.platform.servers
    for path, server, pool in stack.pools():
        if isinstance(pool.loading, OnDemand) or not server.loads_whole_repository:
            continue
        ours = stack.repository(server)
        for other in servers:
            some = [
                each for each in other.pools if isinstance(each.loading, OnDemand) or not other.loads_whole_repository
            ]
            theirs = stack.repository(other)
            if other is server or not some or not any(a.overlaps(b) for a in ours for b in theirs):
                continue
            what = f"{server.name}/{pool.name} preloads the repository from which {other.name}/{some[0].name} loads"
            what += " on demand" if isinstance(some[0].loading, OnDemand) else ""
            why = "It keeps those models in memory all the time too, even if no one calls them."
            do = "Set another repository.path for one of the servers, unless both should load these models."
            if other.kind != server.kind:
                why = f"It tries to load what servers of kind {other.kind} load, and fails."
                do = "Set another repository.path for one of the servers."
            yield stack.source.problem((*path[:2], "repository"), what, why, do)


@definition_rule("No two environments read the same model repository")
def no_two_environments_read_one_repository(definition: Definition) -> Iterator[Problem]:
    """A version that you deploy to one environment would also serve in the other."""
    seen: dict[tuple[tuple[str, ...], str, str], str] = {}
    for stack in definition.stacks:
        ours = stack.environment.name
        for index, server in enumerate(stack.platform.servers):
            for directory in stack.repository(server)[-1:]:  # The first can be a volume's handle, which is any text.
                other = seen.setdefault(directory.place, ours)
                if other != ours:
                    what = f'environments "{other}" and "{ours}" share the model repository of server "{server.name}"'
                    why = f'A version that you deploy to "{other}" would also serve in "{ours}".'
                    do = f'Set another path, dataset or url of the repository in the overlay of "{ours}".'
                    yield stack.source.problem(("servers", index, "repository"), what, why, do)


@definition_rule("No repository of production lies in, or holds, one of another environment")
def production_shares_nothing_that_others_may_write(definition: Definition) -> Iterator[Problem]:
    """Production must not serve files that developers can change in dev."""
    theirs = [
        (stack.name, server.name, stack.repository(server))
        for stack in definition.stacks
        if not stack.environment.production
        for server in stack.platform.servers
    ]
    for stack in definition.stacks if theirs else ():
        for index, server in enumerate(stack.platform.servers if stack.environment.production else ()):
            ours = stack.repository(server)
            sharers = []
            for other, name, directories in theirs:
                # The rule above reports a repository that is the same.
                same = any(a.place == b.place for a in ours[-1:] for b in directories[-1:])
                pairs = [(a, b) for a in ours for b in directories if not same and a.overlaps(b)]
                # A whole file system contains every access point, and a directory of it can contain one.
                unsure = all(a.point != b.point and (b if a.point else a).path.strip("/") for a, b in pairs)
                sharers += [(unsure, f'its files with "{name}" of {other}')] * bool(pairs)
            for unsure, files in sorted(sharers, key=lambda each: each[0])[:1]:
                what = f'the repository of server "{server.name}" {"may share" if unsure else "shares"} {files}'
                why = "An access point can be anywhere in its file system." if unsure else ""
                do = "Set another dataset, path or bucket for production, and another volumeHandle of a CSI volume."
                do = "Set accessPointId for both." if unsure else do
                severity: Severity = "advisory" if unsure else "error"
                yield stack.source.problem(("servers", index, "repository"), what, why, do, severity=severity)


@stack_rule("`scratch` is large enough for models that are copied from a bucket", "advisory")
def scratch_holds_what_is_copied_from_a_bucket(stack: Stack) -> Iterator[Problem]:
    """Triton copies models of a bucket to /tmp before it loads them, and keeps the copy while they are loaded."""
    for path, server, pool in stack.pools():
        far = server.loads_whole_repository and any(server is other for _, other, _ in stack.buckets())
        if stack.staging(server, pool) or not far:
            continue
        copied = sum(byte_count(model.footprint) for model in stack.models_of(server, pool) if model.footprint)
        capacity = devices.capacity_bytes(pool)
        copied = copied if capacity is None else min(copied, capacity)
        if copied > byte_count(pool.scratch):
            size = f"scratch of {server.name}/{pool.name} is {pool.scratch}"
            what = f"{size}, but models with footprints of {gb(copied)} are copied there"
            why = "Triton copies models from object storage to /tmp. A file is about as large as the model in memory."
            do = "Raise scratch, unless the files are smaller"
            do += ", or set loading.staging." if isinstance(pool.loading, OnDemand) else "."
            place = (*path, "scratch") if "scratch" in pool.model_fields_set else path
            yield stack.source.problem(place, what, why, do)


@stack_rule("Each model fits into the staging tier", "advisory")
def staged_models_fit_their_tier(stack: Stack) -> Iterator[Problem]:
    for _, server, pool in stack.pools():
        if (tier := stack.staging(server, pool)) is None:
            continue
        part, whole = STAGED_SHARE
        space = byte_count(tier.size) * part // whole
        for model in stack.models_of(server, pool):
            if model.footprint is None or byte_count(model.footprint) <= space:
                continue
            limit = f"staging of {server.name}/{pool.name} has {gb(space)} for files"
            what = f'model "{model.name}" takes {model.footprint}, but {limit}'
            far = isinstance(server.repository, ObjectStoreRepository)
            why = "It cannot be loaded" if far else "Each load reads it from the repository"
            why = f"{why}, unless its files are smaller than its footprint."
            do = f"Raise size of {tier.size}. A sixteenth of it is reserved for directories and the file system."
            where = (*stack.path_of(model), "footprint")
            yield stack.source.problem(where, what, why, do)


@definition_rule("Each volume of a cluster has its own volume handle", severity="advisory")
def volume_handles_are_used_once_in_a_cluster(definition: Definition) -> Iterator[Problem]:
    """Kubernetes and the drivers identify a volume by its handle.

    If two volumes have one handle, pods of the second wait for ever, or get the mount of the first. EFS is an
    exception: the handle is the id of the file system, and the driver mounts it for each pod.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for stack in definition.stacks:
        for index, dataset in enumerate(stack.platform.datasets):
            if not isinstance(dataset, CsiDataset) or dataset.driver == "efs.csi.aws.com":
                continue
            volume = f'dataset "{dataset.name}" of {stack.name}'
            key = stack.data_plane.context_name, dataset.driver, dataset.volume_handle
            if (other := seen.setdefault(key, volume)) != volume:
                what = f"{volume} has the volume handle {dataset.volume_handle}, as has {other} in the same cluster"
                unique = f"{dataset.volume_handle.partition(':')[0]}:{stack.environment.name}"
                do = "Set another volumeHandle in the overlay of the environment: any text that no other volume has."
                if dataset.driver == GCS_FUSE:  # It mounts the bucket before the colon.
                    do = f"Set volumeHandle: {unique} in the overlay of the environment."
                yield stack.source.problem(("datasets", index, "volumeHandle"), what, do=do)


@definition_rule("An EFS file system is in the region of its data plane", "advisory")
def file_systems_are_of_their_planes_region(definition: Definition) -> Iterator[Problem]:
    """A cluster in another region cannot mount an EFS file system by its name.

    The region of a data plane is in its context (such as an EKS cluster's ARN), its name, or a zone that its pods
    select. The region of the file system is in the host name of an NFS mount. An id does not contain a region, but two
    regions cannot share one id.
    """
    seen: dict[str, tuple[str, str]] = {}
    for stack in definition.stacks:
        plane = stack.data_plane
        selectors = [stack.platform.proxy.node_selector, *(pool.node_selector for _, _, pool in stack.pools())]
        zones = [
            value for each in selectors for key, value in each.items() if key.startswith("topology.kubernetes.io/")
        ]
        found = next(filter(None, map(_REGION.search, (plane.context_name, plane.name, *zones))), None)
        for index, dataset in enumerate(stack.platform.datasets if found else ()):
            here = there = found[0] if found else ""
            key = where = ""
            if isinstance(dataset, NfsDataset) and (named := _REGION.search(dataset.server)):
                key, there, where = "server", named[0], f'dataset "{dataset.name}" is in {named[0]}'
            else:
                system = ""
                if isinstance(dataset, EfsDataset):
                    key, system = "fileSystemId", dataset.file_system_id
                elif isinstance(dataset, CsiDataset) and dataset.driver == "efs.csi.aws.com":
                    key, system = "volumeHandle", dataset.volume_handle.partition(":")[0]
                there, other = seen.setdefault(system, (here, plane.name)) if system else (here, "")
                where = f'data plane "{other}" in {there} mounts {system} too'
            if there != here:
                what = f'data plane "{plane.name}" is in {here}, but {where}'
                why = "An EFS file system is in one region, and clusters in other regions cannot resolve its name."
                do = "Set a file system of that region in the data plane, and replicate the files into it."
                yield stack.source.problem(("datasets", index, key), what, why, do)


@definition_rule("`storageClasses` names kinds of datasets that exist", "advisory")
def storage_classes_are_of_datasets_that_are_there(definition: Definition) -> Iterator[Problem]:
    for index, plane in enumerate(definition.header.data_planes):
        stacks = [stack for stack in definition.stacks if stack.data_plane == plane]
        kinds = {dataset.kind for stack in stacks for dataset in stack.platform.datasets}
        for kind, name in plane.storage_classes.items():
            if kind not in kinds:
                what = f'data plane "{plane.name}" has a storage class for {kind}, {name}, but no dataset of that kind'
                do = f"Remove it, or set it for one of: {', '.join(sorted(kinds)) or '(no dataset)'}."
                where = ("dataPlanes", index, "storageClasses", kind)
                yield definition.document.problem(where, what, do=do)
