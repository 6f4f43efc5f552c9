"""`preflight`: what a stack needs and its cluster lacks, asked before anything is made; `up` and `rollout` ask first.

A lack is hard where something would never start. What the user may not look at is said, and stops nobody.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lab.local_cluster.nodes import GPU, PRODUCT, nodes_of_group
from stacks.command import CommandError
from stacks.problems import count_of, escaped, listed
from stacks.stack import Stack
from stacks.validate import read_definition

from .changes.workloads import Tree, items, mapping, text, workloads
from .contexts import context_in, on_cluster, require_named
from .kubectl import Kinds, Kubectl, KubernetesObject, as_list, explained
from .needs import Lack, Need, needs_of
from .nodes import VENDOR, place_of
from .render import render
from .seen import Seen
from .terminal import in_shell, note

OLDEST = 33  # Minor version of the oldest Kubernetes, as in the chart's kubeVersion.
_MOST = 4  # Nodes that are named.
_ENFORCERS = (
    "anetd", "antrea-agent", "azure-npm", "calico-node", "canal", "cilium", "kube-ovn-cni", "kube-router",
    "ovnkube-node",
)  # fmt: skip
"""DaemonSets of CNIs that enforce NetworkPolicies; Amazon's does where it is told to."""
_SCALER = "--field-selector=metadata.name=cluster-autoscaler-status"  # What Kubernetes' own autoscaler writes.
_FORBIDDEN = re.compile(r'([\w.]+)(?: "([^"]+)")? is forbidden')

Asked = Sequence[tuple[Stack, Sequence[KubernetesObject]]]
"""Stacks of one cluster, with their objects."""


def tell_lacks(path: Path, context: str, only: str | None, seen: Seen) -> None:
    """Say what the stacks of a cluster need and it lacks; raise CommandError where something would never start."""
    definition = seen.definition = read_definition(path)
    require_named(definition, context)
    stacks, kube = on_cluster(definition, context, only), Kubectl(context_in(definition, context))
    seen.stacks = stacks
    kube.ask_ahead()
    seen.lacks = lacks(kube, [(stack, render(stack, definition).objects) for stack in stacks])
    for name, found in seen.lacks.items():
        print("\n".join([f"{name}: {count_of(len(found), 'lack')} in {escaped(kube.context)}.", *map(str, found)]))
    if hard := [name for name, found in seen.lacks.items() if any(lack.hard for lack in found)]:
        raise CommandError(f"{', '.join(hard)} would not come up. Nothing was changed.")


def require(context: str, asked: Asked, *, keep_going: bool = False) -> None:
    """Raise CommandError where something of these stacks would never start; tell what else the cluster lacks.

    With `keep_going` all of it is told, and nothing is stopped.
    """
    found = lacks(Kubectl(context), asked)
    every = dict.fromkeys(lack for of_stack in found.values() for lack in of_stack)
    for lack in every:
        if keep_going or not lack.hard:
            note(str(lack))
    if not keep_going and (names := [name for name, of_stack in found.items() if any(lack.hard for lack in of_stack)]):
        what = f"{', '.join(names)} would not come up in {escaped(context)}; nothing was changed."
        do = "To go on all the same: --keep-going."
        raise CommandError("\n".join([what, *(str(lack) for lack in every if lack.hard), do]))


def lacks(kube: Kubectl, asked: Asked) -> dict[str, list[Lack]]:
    """Return what a cluster lacks of what these stacks need, the hard first; raise CommandError for no answer."""
    needs = {stack.name: needs_of(objects) for stack, objects in asked}
    known = kube.kinds()
    named = [need for found in needs.values() for need in found if (need.version, need.kind) in known]
    named += [Need("v1", "Namespace", stack.namespace, "", "") for stack, _ in asked]
    wide = ["nodes", "daemonsets.apps", *(["csinodes"] if any(need.kind == "CSIDriver" for need in named) else [])]
    wide += ["resourceslices"] if ("resource.k8s.io/v1", "ResourceSlice") in known else []
    columns = "custom-columns=:.kind,:.metadata.namespace,:.metadata.name"
    with ThreadPoolExecutor(2) as beside:
        version = beside.submit(kube.run, "version", "-o", "json")
        look = beside.submit(_get, kube, ",".join(wide), "-A", "-o", "json")
        out, unseen = _get(kube, "-f", "-", "-o", columns, "--no-headers", stdin=as_list([one.stub for one in named]))
        (listing, refused), server = look.result(), json.loads(version.result().stdout)["serverVersion"]
    there = {tuple("" if part == "<none>" else part for part in line.split()) for line in out.splitlines()}
    cluster = _Cluster(kube, known, there, json.loads(listing or "{}").get("items", []), [*refused, *unseen])
    found = {}
    for stack, objects in asked:
        every = [*cluster.of_version(server["minor"]), *cluster.of_kinds(objects), *cluster.of_needs(needs[stack.name])]
        every += [*cluster.of_pods(objects), *cluster.of_inventory(stack), *cluster.of_network(), *cluster.not_seen()]
        found[stack.name] = sorted(every, key=lambda lack: not lack.hard)
    return found


def _get(kube: Kubectl, *arguments: str, stdin: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """Return what `kubectl get` finds, and kind and name (or none) of what the user may not see."""
    done = kube.run("get", *arguments, "--ignore-not-found", stdin=stdin, check=False)
    refused = _FORBIDDEN.findall(done.stderr)
    if done.returncode and not refused:
        raise CommandError(kube.why(done.stderr, "get"))
    return done.stdout, refused


@dataclass(frozen=True)
class _Cluster:
    """What was seen of a cluster, and what follows from it."""

    kube: Kubectl
    known: Kinds
    there: set[tuple[str, ...]]  # Kind, namespace and name of what was asked for by name.
    listing: Sequence[KubernetesObject]
    refused: Sequence[tuple[str, str]]

    def _kubectl(self, *words: str) -> str:
        return " ".join(["kubectl", "--context", *map(in_shell, (self.kube.context, *words))])

    def _all(self, kind: str) -> list[KubernetesObject]:
        return [item for item in self.listing if item["kind"] == kind]

    @cached_property
    def _scales(self) -> bool:
        """Whether an autoscaler is there, by Karpenter's kinds or the record of Kubernetes' own, or cannot be seen."""
        if any(version.startswith("karpenter.sh/") for version, _ in self.known):
            return True
        return any(_get(self.kube, "configmaps", "-A", _SCALER, "-o", "name"))

    def not_seen(self) -> Iterator[Lack]:
        if kinds := [*dict.fromkeys(kind for kind, _ in self.refused)]:
            what = f"you may not look at {listed(kinds)}, so nobody knows whether they are as they must be"
            yield Lack(what, self._kubectl("auth", "can-i", "list", kinds[0]), "Have it granted.")

    def of_version(self, minor: str) -> Iterator[Lack]:
        number = re.match(r"\d+", minor)
        if number and int(number[0]) < OLDEST:
            what = f"this is Kubernetes 1.{number[0]}, and 1.{OLDEST} is the oldest that Tidegate is for"
            yield Lack(what, self._kubectl("version"), "Upgrade the cluster.", hard=True)

    def of_network(self) -> Iterator[Lack]:
        agents = {item["metadata"]["name"]: item for item in self._all("DaemonSet")}
        amazon = "--enable-network-policy=true" in json.dumps(agents.get("aws-node", ""))
        if not amazon and agents.keys().isdisjoint(_ENFORCERS) and ("daemonsets.apps", "") not in self.refused:
            what = "no CNI is seen that is known to enforce NetworkPolicies; without one everybody reaches every pod"
            do = "Find out whether yours does: Calico, Cilium, and Amazon's with enableNetworkPolicy are known to."
            yield Lack(what, self._kubectl("get", "daemonsets", "-A"), do)

    def of_kinds(self, objects: Iterable[KubernetesObject]) -> Iterator[Lack]:
        for version, kind in dict.fromkeys((item["apiVersion"], item["kind"]) for item in objects):
            if (version, kind) not in self.known:
                said = explained(f'no matches for kind "{kind}" in version "{version}"', self.kube.context) or kind
                what, _, do = said.partition("\n")
                command = self._kubectl("api-resources", f"--api-group={version.rpartition('/')[0]}")
                yield Lack(what.rstrip("."), command, do.strip(), hard=True)

    def of_needs(self, needs: Iterable[Need]) -> Iterator[Lack]:
        there = {text(one, "name") for item in self._all("CSINode") for one in items(item, "spec", "drivers")}
        there |= {name for _, name in self.refused}
        for need in needs:
            identity = (need.kind, need.namespace, need.name)
            if identity in self.there or need.name in there or (need.version, need.kind) not in self.known:
                continue
            where = ("-n", need.namespace) if need.namespace else ()
            name, do, hard = f"{need.kind} {'/'.join(filter(None, identity[1:]))}", need.do, need.hard
            if need.namespace and ("Namespace", "", need.namespace) not in self.there:
                # Nobody can have made it yet, and what waits for it begins once it is there.
                do, hard = f"As soon as `up` has made the namespace, and waits: {do}", False
            command = self._kubectl("get", need.kind.lower(), need.name, *where)
            yield Lack(f"{name} is not there: {need.without}", command, do, hard)

    def of_pods(self, objects: Sequence[Tree]) -> Iterator[Lack]:
        """Yield whose pods find no node, or too few devices; an autoscaler may still add some."""
        nodes = self._all("Node")
        for workload in workloads(objects).values() if nodes else ():
            place = place_of(workload, nodes)
            if not place.what:
                continue
            scales = not place.room and self._scales
            later = ", unless an autoscaler adds one" if scales else ""
            what = f"{place.what}: pods of {workload.name} wait{later}"
            yield Lack(what, self._kubectl(*place.command), place.do, not (place.room or scales))

    def of_inventory(self, stack: Stack) -> Iterator[Lack]:
        """Yield which nodes with GPUs are not there as the definition tells of them."""
        nodes, pools = self._all("Node"), [pool for _, _, pool in stack.pools()]
        seen = [_seen(node, self._all("ResourceSlice")) for node in nodes]
        groups = [(group, [*nodes_of_group("node", group, pools)]) for group in stack.data_plane.gpus]
        wanted = [(group, replace(_seen(node, slices), product=group.product)) for group, (node, *slices) in groups]
        for group, asked in wanted if nodes else ():
            if _devices_of(group.product, ((1, one) for one in seen)) == _devices_of(
                group.product, ((group.nodes, one) for group, one in wanted)
            ):
                continue  # the same devices, in other groups
            others = [one for one in seen if one.product == group.product and not one.gives(asked, group.per_node)]
            if (there := sum(one.gives(asked, group.per_node) for one in seen)) >= group.nodes:
                continue
            but = f" ({'; '.join(f'{one.name} has {one}' for one in others[:_MOST])})" if others else ""
            plane = stack.data_plane.name
            inventory = f"data plane {plane} lists {group.nodes} × {group.product} with {asked} each"
            do = f"Correct gpus of data plane {plane}, or add nodes."
            if group.mig:
                label = self._kubectl("label", "node", "NODE", f"{VENDOR}mig.config=LAYOUT", "--overwrite")
                do = f"{do} To have a node cut anew, which first ends every pod on its GPUs: {label}"
            columns = f"{PRODUCT},{VENDOR}mig.config,{VENDOR}mig.config.state"
            yield Lack(f"{inventory}, and {there} are so{but}", self._kubectl("get", "nodes", "-L", columns), do)


@dataclass(frozen=True)
class _Seen:
    """NVIDIA's devices of a node."""

    name: str
    product: str  # Empty if neither GPU Feature Discovery nor the DRA driver publishes it.
    devices: Mapping[str, int]
    """By resource; if pods claim them, by profile."""
    cut_by_claims: bool = False
    """Whether the DRA driver cuts the GPUs as pods claim slices, so that only GPUs are counted."""

    def gives(self, asked: "_Seen", gpus: int) -> bool:
        """Say whether this is such a node, as far as the cluster tells."""
        if self.product != asked.product and (self.product or not self.devices):
            return False
        return self.devices == ({GPU: gpus} if self.cut_by_claims else asked.devices)

    def __str__(self) -> str:
        """Its devices."""
        return ", ".join(f"{count} × {name}" for name, count in self.devices.items()) or "no device"


def _devices_of(product: str, nodes: Iterable[tuple[int, _Seen]]) -> Counter[str]:
    """Count the devices of a product on so many nodes of each kind."""
    found = Counter[str]()
    for many, one in nodes:
        if one.product == product:
            found.update({name: many * count for name, count in one.devices.items()})
    return found


def _seen(node: Tree, slices: Iterable[Tree]) -> _Seen:
    name, allocatable = text(node, "metadata", "name"), mapping(node, "status", "allocatable")
    offered = {key: _count(size) for key, size in sorted(allocatable.items()) if key.startswith(VENDOR)}
    theirs = (one for one in slices if text(one, "spec", "nodeName") == name)
    devices = [each for one in theirs for each in items(one, "spec", "devices")]
    attributes = [mapping(each, "attributes") for each in devices]
    products = (text(each, "productName", "string").replace(" ", "-") for each in attributes)
    label = text(node, "metadata", "labels", PRODUCT).partition("-MIG-")[0].removesuffix("-SHARED")
    profiles = [text(each, "profile", "string", default=GPU) for each in attributes]
    cut_by_claims = any("consumesCounters" in each for each in devices)
    claimed = Counter(each for each in sorted(profiles) if each == GPU or not cut_by_claims)
    found = {key: count for key, count in offered.items() if count}
    return _Seen(name, label or next(products, ""), found or dict(claimed), cut_by_claims and not found)


def _count(amount: object) -> int:
    return int(amount) if isinstance(amount, (int, str)) and str(amount).isdecimal() else 0
