from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stacks.definition.gpu_products import PRODUCTS
from stacks.definition.mig_cuts import Cut, stand_on
from stacks.definition.placement import GpuNodes, MigLayout
from stacks.devices import Device, inventory
from stacks.mig_layouts import Requested, layout
from tests.counts import examples

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
WHOLE = Device("gpu")
PRODUCT = next(each for each in PRODUCTS if each.name == "A100-80GB")


def nodes(count: int, cut: Cut | None = None, product: str = A100, per_node: int = 1) -> GpuNodes:
    value = {"nodes": count, "product": product, "perNode": per_node, "mig": {"slices": cut} if cut else None}
    return GpuNodes.model_validate(value)


def mig(profile: str, strategy: str = "mixed") -> Device:
    return Device("mig", profile, strategy)


def is_given(gpus: list[GpuNodes], requested: Requested) -> bool:
    """Return whether an inventory has the requested devices, of each product and of any."""
    there = inventory(gpus)
    of_any: Counter[Device] = Counter()
    for (device, product), count in requested.items():
        if product is not None and there[device, product] < count:
            return False
        of_any[device] += count
    return all(sum(n for (kind, _), n in there.items() if kind == device) >= n_ for device, n_ in of_any.items())


CUTS = (None, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.10gb": 7}, {"3g.40gb": 2}, {"7g.80gb": 1})
GROUPS = st.lists(
    st.builds(nodes, st.integers(1, 4), st.sampled_from(CUTS), st.sampled_from([A100, H100]), st.integers(1, 3)),
    min_size=1,
    max_size=2,
)
DEVICES = st.sampled_from([*map(mig, PRODUCT.plain), WHOLE])
REQUESTED = st.dictionaries(
    st.tuples(DEVICES, st.sampled_from([None, A100])), st.integers(1, 6), min_size=1, max_size=4
)


@examples(120)
@given(gpus=GROUPS, requested=REQUESTED)
def test_a_found_layout_has_all_requested_slices(gpus: list[GpuNodes], requested: Requested) -> None:
    if found := layout(gpus, requested):
        group, cuts = found
        after = [each for each in gpus if each is not group]
        for cut in cuts:
            mig = MigLayout(strategy=group.strategy or "mixed", slices=cut) if cut else None
            after.append(group.model_copy(update={"nodes": 1, "mig": mig}))
        assert len(cuts) <= group.nodes
        assert is_given(after, requested)


@examples(60)
@given(REQUESTED, st.integers(1, 4))
def test_whole_nodes_are_cut_if_slices_are_placed_on_them(requested: Requested, count: int) -> None:
    slices: Counter[str] = Counter()
    for (device, _), number in requested.items():
        slices.update({device.profile: number} if device.profile else {})
    whole = sum(number for (device, _), number in requested.items() if device == WHOLE)
    fits = count >= whole and stand_on(PRODUCT, slices, count - whole)
    assert (layout([nodes(count)], requested) is not None) == fits


def test_strategies_shares_and_unknown_products_are_not_mixed_up() -> None:
    single: Requested = {(mig("3g.40gb", "single"), None): 2, (mig("1g.10gb", "single"), None): 1}
    assert layout([group := nodes(2)], single) == (group, [{"3g.40gb": 2}, {"1g.10gb": 1}])
    assert layout([nodes(2)], {**single, (mig("1g.10gb"), None): 1}) is None
    assert layout([nodes(2, {"7g.80gb": 1})], single) is None, "its slices are named otherwise"
    assert layout([group], {(Device("dra", "2g.20gb"), None): 2}) == (group, [{"2g.20gb": 2}])
    shared = GpuNodes.model_validate(
        {"nodes": 2, "product": A100, "perNode": 1, "sharing": {"kind": "mps", "replicas": 4}}
    )
    assert layout([shared, nodes(2, product="NVIDIA-X1")], {(mig("1g.10gb"), None): 1}) is None
