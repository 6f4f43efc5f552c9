"""How a data plane's GPUs are cut anew: enough of each slice, and one group alone where that does."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.guardrails.devices import Device
from stacks.definition.gpu_products import PRODUCTS, gpu_product
from stacks.definition.mig_cuts import Cut, stand_on
from stacks.definition.placement import GpuNodes, MigLayout
from stacks.devices import inventory
from stacks.mig_layouts import Asked, Layout, layout
from tests.counts import examples

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
BALANCED = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
WHOLE = Device("gpu")
PROFILES = next(each for each in PRODUCTS if each.name == "A100-80GB").plain


def nodes(count: int, cut: Cut | None = None, product: str = A100, per_node: int = 1) -> GpuNodes:
    value = {"nodes": count, "product": product, "perNode": per_node, "mig": {"slices": cut} if cut else None}
    return GpuNodes.model_validate(value)


def mig(profile: str, strategy: str = "mixed") -> Device:
    return Device("mig", profile, strategy)


def found(gpus: list[GpuNodes], asked: Asked) -> Layout:
    one = layout(gpus, asked)
    assert one is not None
    return one


def is_given(gpus: list[GpuNodes], asked: Asked) -> bool:
    """Say whether an inventory has what is asked for, of each product and of any."""
    there = inventory(gpus)
    of_any: Counter[Device] = Counter()
    for (device, product), count in asked.items():
        if product is not None and there[device, product] < count:
            return False
        of_any[device] += count
    return all(sum(n for (kind, _), n in there.items() if kind == device) >= n_ for device, n_ in of_any.items())


def test_what_the_cuts_of_today_give_needs_no_node_drained() -> None:
    one = found([nodes(2, BALANCED)], {(mig("1g.10gb"), None): 4, (mig("3g.40gb"), A100): 1})
    assert (one.drained, one.gpus) == (0, (nodes(2, BALANCED),))


def test_one_of_two_nodes_is_cut_anew_and_what_is_left_of_it_is_cut_into_more_of_what_is_asked_for() -> None:
    one = found([nodes(2, BALANCED)], {(mig("3g.40gb"), None): 1, (mig("1g.10gb"), None): 8})
    assert [str(change) for change in one.changes] == [
        f"1 × {A100}: 1 × 3g.40gb + 1 × 2g.20gb + 2 × 1g.10gb → 7 × 1g.10gb"
    ]
    assert one.gpus == (nodes(1, BALANCED), nodes(1, {"1g.10gb": 7}))


def test_all_gpus_of_a_node_are_cut_alike() -> None:
    asked: Asked = {(mig("7g.80gb"), None): 1, (mig("1g.10gb"), None): 1}
    assert layout([nodes(1, BALANCED, per_node=8)], asked) is None
    assert found([nodes(2, BALANCED, per_node=8)], asked).drained == 1


def test_whole_gpus_are_cut_and_cut_ones_made_whole() -> None:
    assert found([nodes(2)], {(mig("2g.20gb"), None): 3, (WHOLE, None): 1}).gpus == (
        nodes(1),
        nodes(1, {"2g.20gb": 3}),
    )
    assert found([nodes(2, BALANCED)], {(WHOLE, A100): 1}).gpus == (nodes(1, BALANCED), nodes(1))


def test_a_strategy_of_single_has_one_profile_on_a_node() -> None:
    single = nodes(3).model_copy(update={"mig": MigLayout(strategy="single", slices={"7g.80gb": 1})})
    asked: Asked = {(mig("3g.40gb", "single"), None): 2, (mig("1g.10gb", "single"), None): 1}
    one = found([single], asked)
    assert [change.after for change in one.changes] == [{"3g.40gb": 2}, {"1g.10gb": 7}]
    assert layout([single], {(mig("3g.40gb"), None): 1}) is None  # it names its slices otherwise
    dra: Asked = {(Device("dra", "2g.20gb"), None): 2}
    assert found([nodes(1)], dra).gpus[0].mig == MigLayout(strategy="dra", slices={"2g.20gb": 3})


def test_shared_gpus_and_unknown_products_stay_as_they_are() -> None:
    shared = GpuNodes.model_validate(
        {"nodes": 2, "product": A100, "perNode": 1, "sharing": {"kind": "mps", "replicas": 4}}
    )
    unknown = nodes(2, product="NVIDIA-X1")
    assert layout([shared, unknown], {(mig("1g.10gb"), None): 1}) is None
    assert found([shared, unknown], {(WHOLE, None): 2, (Device("mps"), None): 8}).drained == 0


ASKED = st.dictionaries(
    st.tuples(st.sampled_from([*map(mig, PROFILES), WHOLE]), st.sampled_from([None, A100])),
    st.integers(1, 6),
    min_size=1,
    max_size=4,
)
CUTS = (None, BALANCED, {"1g.10gb": 7}, {"3g.40gb": 2}, {"1g.10gb": 1}, {"7g.80gb": 1})
GROUPS = st.lists(
    st.builds(nodes, st.just(1), st.sampled_from(CUTS), st.sampled_from([A100, H100]), st.integers(1, 3)),
    min_size=1,
    max_size=2,
)


@examples(120)
@given(gpus=GROUPS, asked=ASKED)
def test_what_is_found_gives_all_that_is_asked_for_and_cuts_no_more_nodes_of_a_group_than_it_must(
    gpus: list[GpuNodes], asked: Asked
) -> None:
    one = layout(gpus, asked)
    if one is None:
        assert not is_given(gpus, asked)
        return
    assert is_given(list(one.gpus), asked)
    assert [each.product for each in one.gpus] == [each.product for each in gpus]
    assert (one.drained == 0) == is_given(gpus, asked)


@examples(60)
@given(ASKED, st.integers(1, 4))
def test_nodes_that_are_whole_are_cut_whenever_the_slices_stand_on_them(asked: Asked, count: int) -> None:
    product = gpu_product(A100)
    assert product is not None
    slices: Counter[str] = Counter()
    for (device, _), number in asked.items():
        slices.update({device.profile: number} if device.profile else {})
    whole = sum(number for (device, _), number in asked.items() if device == WHOLE)
    fits = count >= whole and stand_on(product, slices, count - whole)
    assert (layout([nodes(count)], asked) is not None) == fits


@pytest.mark.parametrize("many", [100, 400])
def test_hundreds_of_nodes_are_cut_as_few_are(many: int) -> None:
    gpus = [nodes(many, BALANCED, per_node=8), nodes(many, {"1g.10gb": 7}, H100, per_node=8)]
    asked: Asked = {(mig("3g.40gb"), A100): many * 12, (mig("1g.10gb"), H100): many * 56}
    one = found(gpus, asked)
    assert one.drained == many // 2
    assert one.gpus[1:] == (nodes(many // 2, {"3g.40gb": 2}, per_node=8), gpus[1])
