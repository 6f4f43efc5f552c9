from typing import Any

import pytest

from stacks import devices
from stacks.definition.placement import GpuNodes
from stacks.definition.pools import Pool
from stacks.devices import Device
from stacks.load import frozen

A100 = "NVIDIA-A100-SXM4-80GB"
GB = 10**9
SINGLE = {"kind": "mig", "profile": "1g.10gb", "strategy": "single", "product": A100}
WHOLE_DRA = {"kind": "dra", "deviceClass": "gpu.nvidia.com"}  # The same GPU as without DRA.


def pool(**value: Any) -> Pool:
    return Pool.model_validate(frozen({"name": "p", "loading": {"mode": "on-demand"}, **value}))


@pytest.mark.parametrize(
    ("placement", "device", "words", "count", "memory"),
    [
        ({"kind": "cpu"}, None, "None", 0, 7 * 2**30),  # 8Gi without /dev/shm
        ({"kind": "gpu", "count": 2, "product": A100}, Device("gpu"), "whole GPU", 2, 160 * GB),
        ({"kind": "gpu", "product": "NVIDIA-GH200-480GB"}, Device("gpu"), "whole GPU", 1, 96 * GB),
        ({"kind": "gpu", "product": "NVIDIA-X1-80GB"}, Device("gpu"), "whole GPU", 1, None),
        ({"kind": "mig", "profile": "1g.10gb"}, Device("mig", "1g.10gb", "mixed"), "MIG 1g.10gb (mixed)", 1, 10 * GB),
        (SINGLE, Device("mig", "1g.10gb", "single"), "MIG 1g.10gb (single)", 1, 10 * GB),
        ({"kind": "time-slicing", "product": A100}, Device("time-slicing"), "time-sliced GPU", 1, None),
        ({"kind": "mps"}, Device("mps"), "MPS share of a GPU", 1, None),
        ({"kind": "dra", "profile": "2g.20gb"}, Device("dra", "2g.20gb"), "device by DRA (2g.20gb)", 1, 20 * GB),
        (WHOLE_DRA, Device("gpu"), "whole GPU", 1, None),
    ],
)
def test_a_placement_requests_devices_of_one_kind_with_nine_tenths_of_memory_for_models(
    placement: dict[str, Any], device: Device | None, words: str, count: int, memory: int | None
) -> None:
    placed = pool(placement=placement)
    assert devices.device(placed.placement) == device
    assert str(device) == words
    assert devices.devices_per_replica(placed.placement) == count
    assert devices.memory_bytes(placed) == memory
    assert devices.capacity_bytes(placed) == (memory * 9 // 10 if memory else None)
    drawn = pool(placement=placement, loading={"mode": "on-demand", "capacity": "3Gi"})
    assert devices.capacity_bytes(drawn) == 3 * 2**30
    assert devices.capacity_bytes(pool(placement=placement, loading={"mode": "preload"})) is None


def test_the_inventory_counts_slices_shares_and_whole_gpus_of_all_nodes() -> None:
    mixed, single, dra = ({"strategy": strategy, "slices": {"1g.10gb": 2}} for strategy in ("mixed", "single", "dra"))
    shared = {"sharing": {"kind": "mps", "replicas": 3}}
    groups: list[dict[str, Any]] = [{"mig": mixed}, {"mig": mixed, "nodes": 1}, {"mig": single}, {"mig": dra}, shared]
    nodes = {"nodes": 2, "product": A100, "perNode": 4}
    assert devices.inventory(GpuNodes.model_validate({**nodes, **g}) for g in [*groups, {"product": "NVIDIA-A30"}]) == {
        (Device("mig", "1g.10gb", "mixed"), A100): 2 * 4 * 2 + 1 * 4 * 2,
        (Device("mig", "1g.10gb", "single"), A100): 16,
        (Device("dra", "1g.10gb"), A100): 16,
        (Device("mps"), A100): 24,
        (Device("gpu"), "NVIDIA-A30"): 8,
    }


def test_slices_and_shares_cost_their_part_of_a_gpu_and_the_most_expensive_group_counts() -> None:
    price = {"perHour": 7.0, "source": "A test.", "asOf": "2026-11-01"}
    nodes = {"nodes": 1, "perNode": 2, "product": A100}
    cut = {**nodes, "mig": {"slices": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}}
    shared = {"nodes": 1, "perNode": 1, "product": "NVIDIA-L4", "sharing": {"kind": "mps", "replicas": 4}}

    def of(*groups: dict[str, Any]) -> dict[str, Any]:
        return {key: dict(value) for key, value in devices.prices(map(GpuNodes.model_validate, groups)).items()}

    assert of(cut, shared) == {}
    assert of({**cut, "price": price}, {**shared, "price": price}) == {
        # Half of the memory, and two and one of seven compute slices: 15/14 of a GPU, which costs 7.
        A100: {"3g.40gb": 3.266667, "2g.20gb": 1.866667, "1g.10gb": 0.933333},
        "NVIDIA-L4": {"mps": 1.75},
    }
    assert of({**nodes, "price": price}, {**nodes, "price": {**price, "perHour": 9.0}}) == {A100: {"gpu": 9.0}}
    for order in ([{**nodes, "price": price}, nodes], [nodes, {**nodes, "price": price}]):
        assert of(*order) == {A100: {"gpu": None}}
    assert devices.currency([GpuNodes.model_validate({**nodes, "price": {**price, "currency": "EUR"}})]) == "EUR"
