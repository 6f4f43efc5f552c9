import math
from pathlib import Path
from socket import AF_INET
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.placement import ranked
from tidegate_proxy.residency.leases import CALM, HOT_A_SECOND, HOT_IN_FLIGHT, Heat
from tidegate_proxy.residency.table import LeaseTable
from tidegate_proxy.settings import Tunables
from tidegate_proxy.upstream.replica import Replica

names = st.lists(st.builds("10.{}.{}.{}:8000".format, *[st.integers(0, 255)] * 3), min_size=1, max_size=8, unique=True)
models = st.text(min_size=1, max_size=30)
places = st.dictionaries(
    names.map(lambda found: found[0]), st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8
)
MANY = [f"model-{number}" for number in range(2000)]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13])
def test_one_replica_more_or_less_moves_one_in_so_many_models(number: int) -> None:
    fewer = [f"10.0.0.{each}:8000" for each in range(number)]
    more = [*fewer, "10.0.1.7:8000"]
    before = {model: ranked(model, fewer)[0] for model in MANY}
    after = {model: ranked(model, more)[0] for model in MANY}
    moved = [model for model in MANY if before[model] != after[model]]
    assert {after[model] for model in moved} == {"10.0.1.7:8000"}, "none moves between those that stay"
    expected = len(MANY) / (number + 1)
    assert abs(len(moved) - expected) < 5 * math.sqrt(expected)


@given(models, places)
def test_warm_replicas_come_first_then_the_rank_decides_and_leaving_ones_are_last(
    model: str, found: dict[str, tuple[bool, bool]]
) -> None:
    table, replicas = LeaseTable(Tunables()), {name: Replica(AF_INET, (name.split(":")[0], 8000)) for name in found}
    for name, (stays, warm) in found.items():
        here: Any = SimpleNamespace(replica=replicas[name], accepts=stays, silent=0, is_warm=lambda _, warm=warm: warm)
        table.replicas[replicas[name]] = here
    in_order = [here.replica.name for here in table.in_order(model)]
    rank = ranked(model, found)
    assert in_order == sorted(found, key=lambda name: (not found[name][0], not found[name][1], rank.index(name)))


@pytest.mark.parametrize(("in_flight", "requests"), [(2 * HOT_IN_FLIGHT, 0), (0, 2 * HOT_A_SECOND)])
def test_a_burst_makes_no_model_hot_and_a_load_that_lasts_does_until_calm_has_lasted(
    in_flight: float, requests: float
) -> None:
    heat = Heat(Tunables())
    assert not heat.look(int(in_flight), int(requests), 1.0), "a second is a burst"
    seconds = next(second for second in range(60) if heat.look(int(in_flight), int(requests), 1.0))
    assert seconds < 10
    calm = next(second for second in range(600) if not heat.look(0, 0, 1.0))
    assert Tunables.calm_seconds <= calm + 1 < Tunables.calm_seconds + 30


def test_the_page_shows_since_when_a_model_is_hot() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/eviction.md").read_text("utf-8")
    assert f"{HOT_IN_FLIGHT:g} requests in progress, or {HOT_A_SECOND:g} a second" in page
    assert (CALM, Tunables.calm_seconds) == (0.5, 60)
    assert "below half of both limits for a minute" in page
