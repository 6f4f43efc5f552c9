"""What a placement means in numbers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from stacks import devices
from stacks.definition.placement import GpuNodes, Placement
from stacks.definition.pools import Pool
from stacks.trees import frozen

A100 = "NVIDIA-A100-SXM4-80GB"
GB = 10**9


def place(**value: Any) -> Placement:
    return TypeAdapter[Placement](Placement).validate_python(value)


def pool(**value: Any) -> Pool:
    return Pool.model_validate(frozen({"name": "p", "loading": {"mode": "on-demand"}, **value}))


def nodes(**value: Any) -> GpuNodes:
    return GpuNodes.model_validate({"nodes": 2, "product": A100, "perNode": 4, **value})


@pytest.mark.parametrize(
    ("value", "device", "words", "count"),
    [
        ({"kind": "cpu"}, None, "", 0),
        ({"kind": "gpu", "count": 2}, devices.Device("gpu"), "whole GPU", 2),
        ({"kind": "mig", "profile": "1g.10gb"}, devices.Device("mig", "1g.10gb", "mixed"), "MIG 1g.10gb (mixed)", 1),
        ({"kind": "mig", "profile": "1g.10gb", "strategy": "single", "product": A100},
         devices.Device("mig", "1g.10gb", "single"), "MIG 1g.10gb (single)", 1),
        ({"kind": "time-slicing"}, devices.Device("time-slicing"), "time-sliced GPU", 1),
        ({"kind": "mps"}, devices.Device("mps"), "MPS share of a GPU", 1),
        ({"kind": "dra", "profile": "1g.10gb"}, devices.Device("dra", "1g.10gb"), "device by DRA (1g.10gb)", 1),
        # A whole GPU by another way of asking is the same GPU.
        ({"kind": "dra", "deviceClass": "gpu.nvidia.com"}, devices.Device("gpu"), "whole GPU", 1),
    ],
)  # fmt: skip
def test_a_placement_asks_for_so_many_devices_of_one_kind(
    value: dict[str, Any], device: devices.Device | None, words: str, count: int
) -> None:
    placed = place(**value)
    assert devices.device(placed) == device
    assert devices.devices_per_replica(placed) == count
    assert device is None or str(device) == words


@pytest.mark.parametrize(
    ("value", "most"),
    [({}, 1), ({"replicas": 0}, 0), ({"replicas": 7}, 7), ({"autoscaling": {"kind": "cpu", "min": 1, "max": 9}}, 9)],
)
def test_the_most_replicas_are_what_an_autoscaler_may_choose(value: dict[str, Any], most: int) -> None:
    assert devices.most_replicas(pool(**value)) == most


def test_the_inventory_counts_slices_shares_and_whole_gpus_of_all_nodes() -> None:
    mixed, single, dra = ({"strategy": strategy, "slices": {"1g.10gb": 2}} for strategy in ("mixed", "single", "dra"))
    found = devices.inventory(
        [
            nodes(mig=mixed),
            nodes(mig=mixed, nodes=1),
            nodes(mig=single),
            nodes(mig=dra),
            nodes(sharing={"kind": "mps", "replicas": 3}),
            nodes(product="NVIDIA-A30"),
        ]
    )
    assert found[devices.Device("mig", "1g.10gb", "mixed"), A100] == 2 * 4 * 2 + 1 * 4 * 2
    assert found[devices.Device("mig", "1g.10gb", "single"), A100] == 16
    assert found[devices.Device("dra", "1g.10gb"), A100] == 16
    assert found[devices.Device("mps"), A100] == 24
    assert found[devices.Device("gpu"), "NVIDIA-A30"] == 8
    assert found[devices.Device("gpu"), A100] == 0


@pytest.mark.parametrize(
    ("value", "memory", "capacity"),
    [
        ({"kind": "mig", "profile": "1g.10gb"}, 10 * GB, 9 * GB),
        ({"kind": "dra", "profile": "2g.20gb"}, 20 * GB, 18 * GB),
        ({"kind": "gpu", "product": A100, "count": 2}, 160 * GB, 144 * GB),
        ({"kind": "gpu", "product": "NVIDIA-A30"}, None, None),
        ({"kind": "gpu"}, None, None),
        ({"kind": "mps", "product": A100}, None, None),
        ({"kind": "dra", "deviceClass": "gpu.nvidia.com"}, None, None),
        ({"kind": "cpu"}, 7 * 2**30, 7 * 2**30 * 9 // 10),  # 8Gi without /dev/shm
    ],
)
def test_memory_follows_from_the_placement_and_capacity_is_nine_tenths_of_it(
    value: dict[str, Any], memory: int | None, capacity: int | None
) -> None:
    assert devices.memory_bytes(pool(placement=value)) == memory
    assert devices.capacity_bytes(pool(placement=value)) == capacity


def test_a_capacity_that_is_said_counts_and_a_preload_pool_has_none() -> None:
    assert devices.capacity_bytes(pool(loading={"mode": "on-demand", "capacity": "3Gi"})) == 3 * 2**30
    assert devices.capacity_bytes(pool(loading={"mode": "preload"})) is None
