"""What a stack costs beside one endpoint a model, and the room that its pools have left."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.guardrails.money import Cost, cost
from rollout.room import Room, _endpoints, difference, lines, room_of, saving
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


def room(definition: Definition, name: str) -> Room:
    return room_of(next(stack for stack in definition.stacks if stack.name == name), definition)


def test_room_is_what_nobody_on_the_data_plane_asks_for_and_what_models_leave_of_the_memory() -> None:
    preload, small, large = room(reference(), "prod-east").pools
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
    (_, pool, _) = room(reference(small=small), "dev-lab").pools
    assert "its models want 0.2 GB more than the 3.0 GB for them, and take turns" in str(pool)


def test_a_pool_that_may_have_no_replica_has_the_room_of_its_first_one() -> None:
    asleep = {
        "loading": {"mode": "on-demand"},
        "replicas": None,
        "autoscaling": {"kind": "queue", "min": 0, "max": 1, "prometheusAddress": "http://p"},
    }
    (*_, pool) = room(reference(large=asleep), "prod-east").pools
    assert pool.memory == 36 * GB
    assert "none while nobody calls it, then 21.0 GB of 36.0 GB for models free" in str(pool)


def test_an_endpoint_for_a_model_is_the_cheapest_slice_that_holds_it_in_nine_tenths() -> None:
    found = room(reference(), "prod-east")
    # Of 1g.10gb eight, at a seventh of a GPU: two replicas of four models, as many as they have now. The model of 14Gi
    # needs a 2g.20gb (1g.20gb is cheaper, at a quarter).
    assert found.endpoints == cost(8, 1.0, "USD") + cost(1, 7 * 0.25, "USD")
    assert saving(cost(1, 4.875, "USD"), found) == "one endpoint for each of 5 models: $7,118, 50% saved"
    assert saving(cost(1, 19.5, "USD"), found) == "one endpoint for each of 5 models: $7,118; the slices cost 100% more"


def test_an_endpoint_for_a_model_that_has_a_pool_alone_is_a_replica_of_that() -> None:
    tree = yaml.safe_load(Path("tests/definitions/two-kinds.yaml").read_text("utf-8"))
    pools = [(server["name"], pool) for server in tree["servers"] for pool in server["pools"]]
    (blue,) = (pool for name, pool in pools if name == "chat" and pool["name"] == "blue")
    assert blue["placement"] == {"kind": "gpu", "count": 2}
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "price": PRICE} for group in plane["gpus"]]
    stack = next(stack for stack in read_tree(tree).stacks if stack.name == "dev-lab")
    found = dict(zip((model.name for model in stack.platform.models), _endpoints(stack), strict=True))
    assert found["ranker"] == cost(1, 1.0, "USD")  # Triton's: on a seventh of a GPU
    # Two replicas, each spread over two, whichever its versions are.
    assert found["llama"] == cost(4, 7.0, "USD")
    assert found["planner"] == cost(3, 7.0, "USD")  # at the most replicas of its autoscaler
    assert found["phi"] == cost(0, None, "USD")  # on a processor


def test_without_prices_there_are_device_hours_no_money_and_nothing_to_compare() -> None:
    found = room(reference(price=None), "dev-lab")
    assert found.endpoints.unpriced == 5
    assert saving(cost(3, None, "USD"), found) == "", "an hour of a slice is not worth one of a whole GPU"
    assert difference(cost(3, None, "USD"), cost(5, 1.0, "USD")) == "+1,460 device hours"
    assert difference(cost(3, 1.0, "EUR"), cost(1, 1.0, "EUR")) == "-1,460 EUR"


def test_device_hours_of_larger_slices_are_not_those_of_smaller_ones() -> None:
    small, large = cost(4, None, "USD", "1g.10gb"), cost(4, None, "USD", "2g.20gb")
    assert difference(small, large) == "-2,920 device hours of 1g.10gb, +2,920 device hours of 2g.20gb"
    assert difference(small + large, large + large) == "-2,920 device hours of 1g.10gb, +2,920 device hours of 2g.20gb"
    assert difference(small, small + small) == "+2,920 device hours"
    assert small != large, "what changes is shown"


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_are_compared_with_as_many_of_an_endpoint(replicas: int) -> None:
    tree = yaml.safe_load(Path("stacks/inference.yaml").read_text("utf-8"))
    tree["guardrails"] = {}
    (dev,) = (each for each in tree["environments"] if each["name"] == "dev")
    dev["servers"] = [{"name": "preload", "pools": [{"name": "main", "replicas": replicas}]}]
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "nodes": 9, "price": PRICE} for group in plane["gpus"]]
    stack = next(stack for stack in read_tree(tree).stacks if stack.name == "dev-lab")
    found = zip(stack.platform.models, _endpoints(stack), strict=True)
    assert [each.devices for model, each in found if model.server == "preload"] == [replicas, replicas]


def test_stacks_that_are_alike_are_said_once() -> None:
    definition = reference()
    east, west = (room(definition, name) for name in ("prod-east", "prod-west"))
    told = lines([("prod-east", "$1", Cost(), east), ("prod-west", "$1", Cost(), west), ("gone", "$2", Cost(), None)])
    assert [line for line in told if not line.startswith("    ")] == [
        "  prod-east, prod-west: $1; one endpoint for each of 5 models: $7,118, 100% saved",
        "  gone: $2",
    ]
    assert len(told) == 5
