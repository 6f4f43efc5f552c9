"""How a data plane's GPUs are cut again: enough of each slice, by the nodes of one group."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from policies.guardrails.devices import Device
from stacks.definition.gpu_products import PRODUCTS, gpu_product
from stacks.definition.mig_cuts import Cut, stand_on
from stacks.definition.placement import GpuNodes, MigLayout
from stacks.devices import inventory
from stacks.mig_layouts import Asked, Change, changes
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


def after(gpus: list[GpuNodes], found: list[Change]) -> list[GpuNodes]:
    """The inventory once these nodes are cut again."""
    kept = [
        group.model_copy(update={"nodes": group.nodes - sum(each.nodes for each in found if each.group == place)})
        for place, group in enumerate(gpus)
    ]
    made = []
    for each in found:
        strategy = gpus[each.group].strategy or "mixed"
        mig = MigLayout(strategy=strategy, slices=each.after) if each.after else None
        made.append(gpus[each.group].model_copy(update={"nodes": each.nodes, "mig": mig}))
    return [*kept, *made]


def said(gpus: list[GpuNodes], asked: Asked) -> list[str]:
    found = changes(gpus, asked)
    assert found is not None
    return [str(each).partition(": ")[2] for each in found]


def is_given(gpus: list[GpuNodes], asked: Asked) -> bool:
    """Say whether an inventory has what is asked for, of each product and of any."""
    there = inventory(gpus)
    of_any: Counter[Device] = Counter()
    for (device, product), count in asked.items():
        if product is not None and there[device, product] < count:
            return False
        of_any[device] += count
    return all(sum(n for (kind, _), n in there.items() if kind == device) >= n_ for device, n_ in of_any.items())


def test_as_few_nodes_as_suffice_are_cut_again_into_as_much_of_what_is_asked_for_as_they_hold() -> None:
    assert said([nodes(2, BALANCED)], {(mig("1g.10gb"), None): 4, (mig("3g.40gb"), A100): 1}) == []
    before = "1 × 3g.40gb + 1 × 2g.20gb + 2 × 1g.10gb"
    assert said([nodes(2, BALANCED)], {(mig("3g.40gb"), None): 1, (mig("1g.10gb"), None): 8}) == [
        f"{before} → 7 × 1g.10gb"
    ]
    assert said([nodes(2)], {(mig("2g.20gb"), None): 3, (WHOLE, None): 1}) == ["whole → 3 × 2g.20gb"]
    assert said([nodes(2, BALANCED)], {(WHOLE, A100): 1}) == [f"{before} → whole"]
    alike: Asked = {(mig("7g.80gb"), None): 1, (mig("1g.10gb"), None): 1}
    assert changes([nodes(1, BALANCED, per_node=8)], alike) is None, "all GPUs of a node are cut alike"


def test_a_strategy_of_single_has_one_profile_on_a_node() -> None:
    single = nodes(3).model_copy(update={"mig": MigLayout(strategy="single", slices={"7g.80gb": 1})})
    asked: Asked = {(mig("3g.40gb", "single"), None): 2, (mig("1g.10gb", "single"), None): 1}
    assert said([single], asked) == ["1 × 7g.80gb → 2 × 3g.40gb", "1 × 7g.80gb → 7 × 1g.10gb"]
    assert changes([single], {(mig("3g.40gb"), None): 1}) is None  # it names its slices otherwise
    assert said([nodes(1)], {(Device("dra", "2g.20gb"), None): 2}) == ["whole → 3 × 2g.20gb"]


def test_shared_gpus_and_unknown_products_stay_as_they_are() -> None:
    sharing = {"kind": "mps", "replicas": 4}
    shared = GpuNodes.model_validate({"nodes": 2, "product": A100, "perNode": 1, "sharing": sharing})
    unknown = nodes(2, product="NVIDIA-X1")
    assert changes([shared, unknown], {(mig("1g.10gb"), None): 1}) is None
    assert changes([shared, unknown], {(WHOLE, None): 2, (Device("mps"), None): 8}) == []


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
def test_what_is_found_gives_all_that_is_asked_for(gpus: list[GpuNodes], asked: Asked) -> None:
    found = changes(gpus, asked)
    assert found is None or is_given(after(gpus, found), asked)
    assert (found == []) == is_given(gpus, asked)


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
    assert (changes([nodes(count)], asked) is not None) == fits


def test_hundreds_of_nodes_are_cut_as_few_are() -> None:
    gpus = [nodes(400, BALANCED, per_node=8), nodes(400, {"1g.10gb": 7}, H100, per_node=8)]
    found = changes(gpus, {(mig("3g.40gb"), A100): 400 * 12, (mig("1g.10gb"), H100): 400 * 56})
    assert found == [Change(0, A100, 200, BALANCED, {"3g.40gb": 2})]
