"""What objects say, whoever wrote them: the GPU devices counted from them are those that the definition asks for."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.guardrails.devices import device_counts
from rollout.changes.restarts import notices, restarts
from rollout.render import render
from stacks.devices import device, devices_per_replica, most_replicas
from stacks.stack import Stack
from stacks.validate import read_definition
from tests.counts import examples

from ..conftest import made

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = [ROOT / "stacks/inference.yaml", *sorted((ROOT / "tests/definitions").glob("*.yaml"))]


def expected(stack: Stack) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for pool in (pool for server in stack.platform.servers for pool in server.pools):
        if kind := device(pool.placement):
            wanted[str(kind)] += most_replicas(pool) * devices_per_replica(pool.placement)
    return +wanted


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_objects_ask_for_what_the_definition_asks_for(path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        objects = render(stack, definition).objects
        assert device_counts(objects) == expected(stack)


def test_devices_by_resource_allocation_count_by_their_claims() -> None:
    request = {"name": "gpu", "exactly": {"count": 2, "selectors": [{"cel": {"expression": "x.profile == '1g.10gb'"}}]}}
    devices = {"requests": [request, {"name": "whole", "exactly": {}}]}
    claim = made("ResourceClaimTemplate", "t", spec={"spec": {"devices": devices}})
    pods = {"spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}}
    workload = made("StatefulSet", "w", spec={"replicas": 3, "template": pods})
    assert device_counts([claim, workload]) == {"device by DRA (1g.10gb)": 6, "whole GPU": 3}


_KEYS = st.sampled_from(
    ["template", "spec", "containers", "resources", "limits", "nvidia.com/gpu", "resourceClaims", "volumes"]
)
_JUNK = st.recursive(
    st.none() | st.integers(-1, 9) | st.sampled_from(["nvidia.com/gpu", "x", "2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@examples(60)
@given(spec=_JUNK, other=_JUNK)
def test_what_a_hand_broke_is_no_reason_to_fail(spec: Any, other: Any) -> None:
    before, after = ([made("StatefulSet", "w", spec=junk), made("ConfigMap", "x", data=junk)] for junk in (spec, other))
    device_counts(before)
    restarts(before, after)
    notices(before, after)
