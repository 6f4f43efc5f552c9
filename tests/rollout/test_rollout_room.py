"""The room that the pools of a stack have left, and how costs are said."""

from pathlib import Path
from typing import Any

import yaml

from policies.guardrails.money import cost
from rollout.room import PoolRoom, difference, lines, room_of
from stacks.definition.base import byte_count
from stacks.stack import Definition
from tests.strategies.definitions import read_tree

GB = 10**9
PRICE = {"perHour": 7.0, "source": "A test.", "asOf": "2026-11-01"}


def reference(price: Any = PRICE, **pools: Any) -> Definition:
    tree = yaml.safe_load(Path("stacks/inference.yaml").read_text("utf-8"))
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "price": price} for group in plane["gpus"]]
    for pool in (pool for server in tree["servers"] for pool in server["pools"]):
        pool.update(pools.get(pool["name"], {}))
    return read_tree(tree)


def room(definition: Definition, name: str) -> tuple[PoolRoom, ...]:
    return room_of(next(stack for stack in definition.stacks if stack.name == name), definition)


def test_room_is_what_nobody_on_the_data_plane_asks_for_and_what_models_leave_of_the_memory() -> None:
    preload, small, large = room(reference(), "prod-east")
    assert (preload.pool, preload.devices, preload.free) == ("preload/main", 2, 0)
    assert preload.left == 20 * GB - byte_count("5Gi")  # every replica has all of them
    assert (small.devices, small.free, small.unknown) == (3, 1, 0)
    assert small.memory == 3 * byte_count("8Gi")
    assert small.left == small.memory - byte_count("3100Mi")
    assert (large.device, large.free) == ("MIG 3g.40gb (mixed)", 1)
    assert str(large) == (
        "ondemand/large: 1 × MIG 3g.40gb (mixed); 1 more free on the data plane; 23.6 GB of 38.7 GB for models free"
    )


def test_models_that_want_more_than_there_is_take_turns() -> None:
    small = {"loading": {"mode": "on-demand", "policy": "lru", "capacity": "2900Mi"}}
    (_, pool, _) = room(reference(small=small), "dev-lab")
    assert "its models want 0.2 GB more than the 3.0 GB for them, and take turns" in str(pool)


def test_a_pool_that_may_have_no_replica_has_the_room_of_its_first_one() -> None:
    asleep = {
        "loading": {"mode": "on-demand"},
        "replicas": None,
        "autoscaling": {"kind": "queue", "min": 0, "max": 1, "prometheusAddress": "http://p"},
    }
    (*_, pool) = room(reference(large=asleep), "prod-east")
    assert pool.memory == 36 * GB
    assert "none while nobody calls it, then 21.0 GB of 36.0 GB for models free" in str(pool)


def test_without_prices_there_are_device_hours_and_no_money() -> None:
    assert difference(cost(3, None, "USD"), cost(5, 1.0, "USD")) == "+1,460 device hours"
    assert difference(cost(3, 1.0, "EUR"), cost(1, 1.0, "EUR")) == "-1,460 EUR"


def test_device_hours_of_larger_slices_are_not_those_of_smaller_ones() -> None:
    small, large = cost(4, None, "USD", "1g.10gb"), cost(4, None, "USD", "2g.20gb")
    assert difference(small, large) == "-2,920 device hours of 1g.10gb, +2,920 device hours of 2g.20gb"
    assert difference(small + large, large + large) == "-2,920 device hours of 1g.10gb, +2,920 device hours of 2g.20gb"
    assert difference(small, small + small) == "+2,920 device hours"
    assert small != large, "what changes is shown"


def test_stacks_that_are_alike_are_said_once() -> None:
    definition = reference()
    east, west = (room(definition, name) for name in ("prod-east", "prod-west"))
    told = lines([("prod-east", "$1", east), ("prod-west", "$1", west), ("gone", "$2", ())])
    assert [line for line in told if not line.startswith("    ")] == [
        "  prod-east, prod-west: $1",
        "  gone: $2",
    ]
    assert len(told) == 5
