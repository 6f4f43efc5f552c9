"""`preflight`: prerequisites of a stack that its cluster lacks. `up` and `rollout` check them first.

A prerequisite is hard if something would never start without it. Missing read permissions never block a command.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from policies.guardrails.objects import mapping, mappings, text
from stacks.command import CommandError, in_shell
from stacks.problems import count_of, escaped, listed
from stacks.stack import Stack
from stacks.validate import read_definition

from .changes.workloads import Tree, workloads
from .contexts import context_in, on_cluster, require_named
from .kubectl import Kinds, Kubectl, KubernetesObject, as_list, explained
from .needs import MissingPrerequisite, Prerequisite, needs_of
from .render import render
from .seen import CommandReport
from .terminal import note

OLDEST = 33  # Minor version of the oldest Kubernetes, as in the chart's kubeVersion.
VENDOR = "nvidia.com/"
_OFFERED = ("status", "allocatable")
_ENFORCERS = (
    "anetd", "antrea-agent", "azure-npm", "calico-node", "canal", "cilium", "kube-ovn-cni", "kube-router",
    "ovnkube-node",
)  # fmt: skip
"""DaemonSets of CNIs that enforce NetworkPolicies. Amazon's does so only if it is configured to."""
_SCALER = "--field-selector=metadata.name=cluster-autoscaler-status"  # Written by Kubernetes' own autoscaler.
_FORBIDDEN = re.compile(r'([\w.]+)(?: "([^"]+)")? is forbidden')

Wanted = Sequence[tuple[Stack, Sequence[KubernetesObject]]]
"""Stacks of one cluster, with their objects."""


def print_missing(path: Path, context: str, only: str | None, seen: CommandReport) -> None:
    """Print the prerequisites that a cluster lacks. Raise CommandError if something would never start."""
    definition = seen.definition = read_definition(path)
    require_named(definition, context)
    stacks, kube = on_cluster(definition, context, only), Kubectl(context_in(definition, context))
    seen.stacks = stacks
    kube.query_ahead()
    seen.lacks = lacks(kube, [(stack, render(stack, definition).objects) for stack in stacks])
    for name, found in seen.lacks.items():
        lacking = count_of(len(found), "prerequisite")
        print("\n".join([f"{name}: {escaped(kube.context)} lacks {lacking}.", *map(str, found)]))
    if hard := [name for name, found in seen.lacks.items() if any(lack.hard for lack in found)]:
        raise CommandError(f"{', '.join(hard)} would not start. Nothing was changed.")


def ensure_ready(context: str, wanted: Wanted, *, keep_going: bool = False) -> None:
    """Raise CommandError if something of these stacks would never start. Print other missing prerequisites. With
    `keep_going`, print all of them and raise nothing."""
    found = lacks(Kubectl(context), wanted)
    every = dict.fromkeys(lack for of_stack in found.values() for lack in of_stack)
    for lack in every:
        if keep_going or not lack.hard:
            note(str(lack))
    if not keep_going and (names := [name for name, of_stack in found.items() if any(lack.hard for lack in of_stack)]):
        what = f"{', '.join(names)} would not start in {escaped(context)}. Nothing was changed."
        do = "To continue nevertheless, add --keep-going."
        raise CommandError("\n".join([what, *(str(lack) for lack in every if lack.hard), do]))


def lacks(kube: Kubectl, wanted: Wanted) -> dict[str, list[MissingPrerequisite]]:
    """Return the missing prerequisites of each stack, hard ones first. Raise CommandError if a query fails."""
    needs = {stack.name: needs_of(objects) for stack, objects in wanted}
    known = kube.kinds()
    named = [need for found in needs.values() for need in found if (need.version, need.kind) in known]
    named += [Prerequisite("v1", "Namespace", stack.namespace, "", "") for stack, _ in wanted]
    wide = ["nodes", "daemonsets.apps", *(["csinodes"] if any(need.kind == "CSIDriver" for need in named) else [])]
    columns = "custom-columns=:.kind,:.metadata.namespace,:.metadata.name"
    with ThreadPoolExecutor(2) as beside:
        version = beside.submit(kube.run, "version", "-o", "json")
        look = beside.submit(_get, kube, ",".join(wide), "-A", "-o", "json")
        out, unseen = _get(kube, "-f", "-", "-o", columns, "--no-headers", stdin=as_list([one.stub for one in named]))
        (listing, refused), server = look.result(), json.loads(version.result().stdout)["serverVersion"]
    there = {tuple("" if part == "<none>" else part for part in line.split()) for line in out.splitlines()}
    cluster = _Cluster(kube, known, there, json.loads(listing or "{}").get("items", []), [*refused, *unseen])
    found = {}
    for stack, objects in wanted:
        every = [*cluster.of_version(server["minor"]), *cluster.of_kinds(objects), *cluster.of_needs(needs[stack.name])]
        every += [*cluster.of_pods(objects), *cluster.of_network(), *cluster.not_seen()]
        found[stack.name] = sorted(every, key=lambda lack: not lack.hard)
    return found


def _get(kube: Kubectl, *arguments: str, stdin: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """Return the output of `kubectl get`, and kind and name (or "") of what the user lacks permission to see."""
    done = kube.run("get", *arguments, "--ignore-not-found", stdin=stdin, check=False)
    refused = _FORBIDDEN.findall(done.stderr)
    if done.returncode and not refused:
        raise CommandError(kube.why(done.stderr, "get"))
    return done.stdout, refused


@dataclass(frozen=True)
class _Cluster:
    """The queried state of a cluster, and the checks of it."""

    kube: Kubectl
    known: Kinds
    there: set[tuple[str, ...]]  # Kind, namespace and name of the named objects that exist.
    listing: Sequence[KubernetesObject]
    refused: Sequence[tuple[str, str]]

    def _kubectl(self, *words: str) -> str:
        return " ".join(["kubectl", "--context", *map(in_shell, (self.kube.context, *words))])

    def _all(self, kind: str) -> list[KubernetesObject]:
        return [item for item in self.listing if item["kind"] == kind]

    @cached_property
    def _scales(self) -> bool:
        """Whether there is an autoscaler, by Karpenter's kinds or the status of Kubernetes' own. True if unreadable."""
        if any(version.startswith("karpenter.sh/") for version, _ in self.known):
            return True
        return any(_get(self.kube, "configmaps", "-A", _SCALER, "-o", "name"))

    def not_seen(self) -> Iterator[MissingPrerequisite]:
        if kinds := [*dict.fromkeys(kind for kind, _ in self.refused)]:
            what = f"you lack permission to list {listed(kinds)}, so they could not be checked"
            do = "Grant the list permission with a Role or a ClusterRole."
            yield MissingPrerequisite(what, self._kubectl("auth", "can-i", "list", kinds[0]), do)

    def of_version(self, minor: str) -> Iterator[MissingPrerequisite]:
        number = re.match(r"\d+", minor)
        if number and int(number[0]) < OLDEST:
            what = f"the cluster runs Kubernetes 1.{number[0]}, but Tidegate needs 1.{OLDEST} or later"
            yield MissingPrerequisite(what, self._kubectl("version"), "Upgrade the cluster.", hard=True)

    def of_network(self) -> Iterator[MissingPrerequisite]:
        agents = {item["metadata"]["name"]: item for item in self._all("DaemonSet")}
        amazon = "--enable-network-policy=true" in json.dumps(agents.get("aws-node", ""))
        if not amazon and agents.keys().isdisjoint(_ENFORCERS) and ("daemonsets.apps", "") not in self.refused:
            what = "no CNI that is known to enforce NetworkPolicies was found. Without one, all pods reach each other"
            do = "Check whether yours does. Calico, Cilium, and Amazon's with enableNetworkPolicy do."
            yield MissingPrerequisite(what, self._kubectl("get", "daemonsets", "-A"), do)

    def of_kinds(self, objects: Iterable[KubernetesObject]) -> Iterator[MissingPrerequisite]:
        for version, kind in dict.fromkeys((item["apiVersion"], item["kind"]) for item in objects):
            if (version, kind) not in self.known:
                error = explained(f'no matches for kind "{kind}" in version "{version}"', self.kube.context) or kind
                what, _, do = error.partition("\n")
                command = self._kubectl("api-resources", f"--api-group={version.rpartition('/')[0]}")
                yield MissingPrerequisite(what.rstrip("."), command, do.strip(), hard=True)

    def of_needs(self, needs: Iterable[Prerequisite]) -> Iterator[MissingPrerequisite]:
        there = {text(one, "name") for item in self._all("CSINode") for one in mappings(item, "spec", "drivers")}
        there |= {name for _, name in self.refused}
        for need in needs:
            identity = (need.kind, need.namespace, need.name)
            if identity in self.there or need.name in there or (need.version, need.kind) not in self.known:
                continue
            where = ("-n", need.namespace) if need.namespace else ()
            name, do, hard = f"{need.kind} {'/'.join(filter(None, identity[1:]))}", need.do, need.hard
            if need.namespace and ("Namespace", "", need.namespace) not in self.there:
                # It cannot exist yet. Pods that wait for it start as soon as it does.
                do, hard = f"Do this as soon as `up` has created the namespace, and waits: {do}", False
            command = self._kubectl("get", need.kind.lower(), need.name, *where)
            yield MissingPrerequisite(f"{name} does not exist: {need.without}", command, do, hard)

    def of_pods(self, objects: Sequence[Tree]) -> Iterator[MissingPrerequisite]:
        """Yield workloads whose pods select labels or request devices that no node has. An autoscaler may add some."""
        nodes = self._all("Node")
        for workload in workloads(objects).values() if nodes else ():
            selector = mapping(workload.pod, "nodeSelector")
            labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
            chosen = [node for node in nodes if selector.items() <= mapping(node, "metadata", "labels").items()]
            show, do = ("get", "nodes", "--show-labels"), "Label nodes so, or change nodeSelector or the placement."
            what, room = f"no node has the labels {labels}", 0
            if chosen:
                limits = [one for each in workload.containers for one in mapping(each, "resources", "limits").items()]
                wanted = Counter[str]()
                for name, amount in limits:
                    wanted.update({name: _count(amount)} if name.startswith(VENDOR) else {})
                wanted = +wanted
                room = workload.most if not wanted else 0
                for offered in (mapping(node, *_OFFERED) for node in chosen) if wanted else ():
                    room += min(_count(offered.get(name)) // count for name, count in wanted.items())
                what = f"the nodes have enough {listed(wanted)} for {room} of {workload.pods}"
                show = ("describe", "nodes", *(("-l", labels) if labels else ()))
                do = "Let NVIDIA's GPU operator label the nodes and its MIG manager cut them, or change the placement."
            if room < workload.most:
                scales = not room and self._scales
                later = ", unless an autoscaler adds nodes" if scales else ""
                yield MissingPrerequisite(
                    f"{what}: pods of {workload.name} wait{later}", self._kubectl(*show), do, not (room or scales)
                )


def _count(amount: object) -> int:
    return int(amount) if isinstance(amount, (int, str)) and str(amount).isdecimal() else 0
