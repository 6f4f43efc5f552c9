"""No change of a definition is silent: it is refused, or a preview shows it, or it has no effect."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from components.args import NetworkBoundaryArgs, PoolArgs, ProxyArgs, TritonServerArgs
from rollout.changes.compare import compare
from rollout.render import render
from stacks.clients import environments
from stacks.definition.datasets import ClaimDataset
from stacks.definition.environment import Network
from stacks.definition.images import POLICY_IMAGE, PROXY_IMAGE
from stacks.definition.pools import OnDemand, Pool, QueueScaling
from stacks.definition.proxy import Proxy
from stacks.definition.triton import TritonServer
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.problems import DefinitionError, Problem
from stacks.resolve import in_order, resolve
from stacks.stack import Definition, Stack
from stacks.validate import validate
from tests.counts import examples
from tests.strategies.changes import Change, changed, changes, keys
from tests.strategies.definitions import definition_trees


def read(tree: Any) -> Definition:
    return validate(parse(json.dumps(tree), "definition.yaml"), ImagesLock())


SPELT_OUT = {"Toleration.operator"}
"""Keys with a default in the components: the objects are the same with and without it."""


class Example:
    def __init__(self, tree: Any) -> None:
        self.tree, self.definition, self.changes = tree, read(tree), [*changes(tree)]
        self.stacks = {stack.name: stack for stack in self.definition.stacks}
        self.objects = cache(lambda name: render(self.stacks[name], self.definition).objects)

    def outcome(self, change: Change) -> str:
        try:
            new = read(changed(self.tree, *change[:2]))
        except DefinitionError:
            return "refused"
        if self.stacks.keys() != {stack.name for stack in new.stacks}:
            return "shown"  # as a stack that appears or disappears
        differing = [
            stack for stack in new.stacks if meant(stack, new) != meant(self.stacks[stack.name], self.definition)
        ]
        if not all(self.shows(stack, new) for stack in differing):
            known = {(each.path, each.what) for each in self.definition.advisories}
            reported = [each.path for each in new.advisories if (each.path, each.what) not in known]
            key = re.compile(rf"(.*\.)?{change[2].rpartition('.')[2]}(\[[^]]*\])?")
            is_reported = any(key.fullmatch(path) for path in reported)
            return "equal" if change[2] in SPELT_OUT or is_reported else "silent"
        return "shown" if differing else "equal"

    def shows(self, stack: Stack, new: Definition) -> bool:
        """Whether a preview shows a difference. Another test covers the content of the Namespace."""
        old = self.stacks[stack.name]
        if resolve(old, self.definition.lock).namespace != resolve(stack, new.lock).namespace:
            return True
        return bool(compare(self.objects(stack.name), render(stack, new).objects))


@cache
def rich() -> dict[str, Example]:
    files = [Path("stacks/inference.yaml"), *sorted(Path("tests/definitions").glob("*.yaml"))]
    return {path.stem: Example(yaml.safe_load(path.read_text("utf-8"))) for path in files}


def meant(stack: Stack, definition: Definition) -> tuple[Any, ...]:
    """Return everything that a stack resolves to, its advisories, and the clients' settings.

    A model without a pool gets its server's only one. Values without any effect are removed, such as an unused image or
    claim. So are the scrape interval of unread metrics, and the wait for a first replica if there always is one.
    """
    run = {PROXY_IMAGE}
    run |= {POLICY_IMAGE for _, _, pool in stack.pools() if isinstance(pool.loading, OnDemand)}
    run |= {server.image for server in stack.platform.servers}
    images = tuple(image for image in stack.platform.images if image.name in run)
    only = {server.name: server.pools[0].name for server in stack.platform.servers}
    models = tuple(
        model.model_copy(update={"pool": model.pool or only[model.server]}) for model in stack.platform.models
    )
    used = {getattr(server.repository, "dataset", None) for server in stack.platform.servers}
    datasets = tuple(
        each for each in stack.platform.datasets if each.name in used or not isinstance(each, ClaimDataset)
    )
    update = {"models": models, "images": images, "datasets": datasets}
    stack = replace(stack, platform=stack.platform.model_copy(update=update))
    plane = stack.data_plane.model_dump() | {"context": stack.data_plane.context_name}
    environment = stack.environment.model_dump() | {"namespace": stack.namespace}
    resolved = {"monitoring", "network", "proxy", "servers"}
    platform = in_order(stack.platform).model_dump(exclude=resolved)
    clients = next(each for each in environments(definition).environments if each.name == stack.environment.name)
    of_plane = next(each for each in clients.planes if each.name == stack.data_plane.name)
    args = resolve(stack, definition.lock)
    args = args.model_copy(update={"servers": tuple(map(_without_waking, args.servers))})
    return (
        args if POLICY_IMAGE in run else args.model_copy(update={"eviction_policy_image": None}),
        plane,
        environment,
        platform,
        clients.model_copy(update={"planes": (of_plane,)}),
    )


def _without_waking(server: Any) -> Any:
    """Return a server without the wait for a first replica, if there always is one."""
    pools = []
    for pool in server.pools:
        if isinstance(scaling := pool.autoscaling, QueueScaling) and scaling.min:
            scaling = scaling.model_copy(update={"wake_seconds": 1})
        pools.append(pool.model_copy(update={"autoscaling": scaling}))
    return server.model_copy(update={"pools": tuple(pools)})


def findings(tree: Any) -> tuple[list[Any] | None, list[Problem]]:
    try:
        read_one = read(tree)
    except DefinitionError as error:
        return None, error.problems
    return [meant(stack, read_one) for stack in read_one.stacks], list(read_one.advisories)


def contradictions(found: Sequence[Problem]) -> set[str]:
    """Return keys that one finding demands and another one forbids, and duplicate findings."""
    wanted = {each.path for each in found if each.is_missing}
    unwanted = {each.path for each in found if "unknown key" in each.what or each.do.startswith(("Remove", "Take"))}
    twice = Counter((each.where, each.path, each.what) for each in found)
    return wanted & unwanted | {what for (*_, what), count in twice.items() if count > 1}


def test_resolving_keeps_every_key_of_what_becomes_arguments() -> None:
    pairs = (Pool, PoolArgs), (TritonServer, TritonServerArgs), (Proxy, ProxyArgs), (Network, NetworkBoundaryArgs)
    for kind, args in pairs:
        assert kind.model_fields.keys() - args.model_fields.keys() <= {"formerly"}


def test_keys_without_another_object_are_rendered_with_the_namespace() -> None:
    for example in (rich()["inference"], rich()["everything"]):
        for stack in example.stacks.values():
            (namespace,) = (item for item in example.objects(stack.name) if item["kind"] == "Namespace")
            wanted = resolve(stack, example.definition.lock).namespace.annotations
            assert wanted.items() <= namespace["metadata"]["annotations"].items()
            assert '"wave"' in wanted["tidegate.dev/definition"]


@examples(400)
@given(st.data())
def test_no_leaf_of_any_definition_changes_in_silence(data: st.DataObject) -> None:
    is_rich = data.draw(st.booleans())
    example = data.draw(st.sampled_from([*rich().values()])) if is_rich else Example(data.draw(definition_trees()))
    change = data.draw(st.sampled_from(example.changes))
    assert example.outcome(change) != "silent", change


@pytest.mark.thorough
def test_no_key_of_the_schema_changes_in_silence() -> None:
    """Change each key until previews have shown it, or until there is no other value."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in sorted(rich().values(), key=lambda each: len(each.stacks)):  # faster to render, so first
        for change in example.changes:
            if not found[change[2]]["shown"]:
                outcome = example.outcome(change)
                assert outcome != "silent", change
                found[change[2]][outcome] += 1
    assert keys() <= found.keys()
    assert len({key for key in keys() if found[key]["shown"]}) > len(keys()) * 0.8, "others cannot change alone"


@examples(400)
@given(st.data())
def test_two_changes_are_refused_or_both_count_or_a_finding_reports_the_one_without_effect(data: st.DataObject) -> None:
    """No pair of keys causes a traceback or contradictory findings. If a change counts alone, but not together with
    another one, a finding must report that it has no effect."""
    example = data.draw(st.sampled_from([*rich().values()]))
    keyed: dict[str, list[Change]] = {}
    for change in example.changes:
        keyed.setdefault(change[2], []).append(change)
    pair = [data.draw(st.sampled_from(keyed[data.draw(st.sampled_from([*keyed]))])) for _ in range(2)]
    one, two = sorted(pair, key=lambda change: [str(step).zfill(3) for step in change[0]], reverse=True)
    assume(one[0][: len(two[0])] != two[0][: len(one[0])])
    assume(one[2] != two[2] or one[0][0] == two[0][0])  # an overlay's value is merged into the base's
    alone = [findings(changed(example.tree, *each[:2])) for each in (one, two)]
    both, reports = findings(changed(changed(example.tree, *one[:2]), *two[:2]))
    assert not contradictions(reports), pair
    before = [meant(stack, example.definition) for stack in example.stacks.values()]
    known = {(each.path, each.what) for _, some in alone for each in some}
    for (meaning, _), (other, _) in (alone, alone[::-1]):
        has_lost_its_effect = meaning not in (before, None) and both is not None and both == other
        assert not has_lost_its_effect or any((each.path, each.what) not in known for each in reports), pair
