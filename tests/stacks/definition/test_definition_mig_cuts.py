"""Which slices stand on how many GPUs, against a search over the driver's places."""

import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.definition.gpu_products import PRODUCTS, GpuProduct
from stacks.definition.mig_cuts import cuts, fewest_gpus, filled, most_on_one_gpu, stand_on, unused, words
from tests.mig_parted import MOST

A100 = next(each for each in PRODUCTS if each.name == "A100-80GB")
PROFILES = A100.plain
# Compute slices → memory slices → the memory slices at which the driver lets an instance begin (nvidia-smi mig -lgipp).
PLACES: Mapping[int, Mapping[int, Sequence[int]]] = {
    1: {1: range(7), 2: (0, 2, 4, 6)},
    2: {2: (0, 2, 4)},
    3: {4: (0, 4)},
    4: {4: (0,)},
    7: {8: (0,)},
}
FOUR_PLACES: Mapping[int, Mapping[int, Sequence[int]]] = {1: {1: range(4)}, 2: {2: (0, 2)}, 4: {4: (0,)}}
SHAPES = [each for each in PRODUCTS if each.name in ("A30", "A100-80GB", "GB300", "RTX-PRO-6000")]
COUNTS = st.dictionaries(st.sampled_from(PROFILES), st.integers(0, 9))


@functools.cache
def has_places(kinds: tuple[tuple[int, int], ...], memory_slices: int, taken: int = 0) -> bool:
    """Try every place of each instance. `taken` has a bit for each memory slice."""
    if not kinds:
        return True
    (compute, memory), *others = kinds
    places = PLACES if memory_slices == 8 else FOUR_PLACES
    masks = (((1 << memory) - 1) << start for start in places[compute][memory])
    return any(not taken & mask and has_places(tuple(others), memory_slices, taken | mask) for mask in masks)


def is_placed(product: GpuProduct, slices: Mapping[str, int]) -> bool:
    kinds = [product.profiles[profile] for profile, count in slices.items() for _ in range(count)]
    media = sum(count for profile, count in slices.items() if "+me" in profile)
    return media <= 1 and has_places(tuple(sorted(kinds, reverse=True)), product.slices[1])


@functools.cache
def best_cuts() -> tuple[tuple[int, ...], ...]:
    """The ways to cut one GPU to which no slice can be added."""
    every = {
        counts
        for counts in itertools.product(*(range(MOST["NVIDIA-A100-SXM4-80GB"][profile] + 1) for profile in PROFILES))
        if is_placed(A100, dict(zip(PROFILES, counts, strict=True)))
    }
    return tuple(
        counts
        for counts in every
        if not any((*counts[:at], counts[at] + 1, *counts[at + 1 :]) in every for at in range(len(PROFILES)))
    )


@functools.cache
def fewest_by_search(wanted: tuple[int, ...]) -> int:
    if not any(wanted):
        return 0
    hardest = max(at for at, count in enumerate(wanted) if count)
    rests = (tuple(max(0, a - b) for a, b in zip(wanted, cut, strict=True)) for cut in best_cuts() if cut[hardest])
    return 1 + min(map(fewest_by_search, rests))


@pytest.mark.parametrize("product", SHAPES, ids=lambda product: product.name)
def test_counting_agrees_with_trying_all_places_for_every_layout(product: GpuProduct) -> None:
    fitting = 0
    media = [profile for profile in product.profiles if "+me" in profile][:2]
    for counts in itertools.product(*[range(4)] * len(product.plain), *[range(3)] * len(media)):
        slices = dict(zip([*product.plain, *media], counts, strict=True))
        assert stand_on(product, slices, 1) is is_placed(product, slices)
        fitting += is_placed(product, slices)
        if is_placed(product, slices):
            assert min(unused(product, slices)) >= 0
    assert fitting > 10


@given(slices=st.fixed_dictionaries({profile: st.integers(0, 4) for profile in PROFILES}))
def test_no_fewer_gpus_hold_given_slices_than_a_search_over_all_cuts_finds(slices: dict[str, int]) -> None:
    assert fewest_gpus(A100, slices) == fewest_by_search(tuple(slices[profile] for profile in PROFILES))


@given(slices=COUNTS)
def test_the_cuts_of_the_fewest_gpus_hold_the_slices_and_nothing_else(slices: dict[str, int]) -> None:
    found = cuts(A100, slices)
    assert len(found) == fewest_gpus(A100, slices)
    assert sum(map(Counter, found), Counter()) == +Counter(slices)
    assert all(is_placed(A100, cut) for cut in found)


@given(slices=COUNTS)
def test_a_filled_gpu_keeps_its_slices_and_has_no_place_for_another_of_these_profiles(slices: dict[str, int]) -> None:
    for cut in cuts(A100, slices):
        full = filled(A100, cut, slices)
        assert Counter(full) >= Counter(cut)
        assert is_placed(A100, full)
        assert not any(is_placed(A100, Counter(full) + Counter({profile: 1})) for profile in slices)


@given(slices=st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 2)))
def test_the_cut_that_is_proposed_fits_and_leaves_out_no_slice_that_would_fit_too(slices: dict[str, int]) -> None:
    most = Counter(most_on_one_gpu(A100, slices))
    assert is_placed(A100, most)
    assert most <= Counter(slices)
    assert not any(is_placed(A100, most + Counter({each: 1})) for each in slices if most[each] < slices[each])


def test_the_uncut_rest_is_in_compute_and_memory_slices() -> None:
    assert unused(A100, {"1g.10gb": 7}) == (0, 1)
    assert unused(A100, {"3g.40gb": 2}) == (1, 0)
    assert unused(A100, {"4g.40gb": 1, "3g.40gb": 1}) == (0, 0)
    assert words({"3g.40gb": 1, "1g.10gb": 4}) == "1 × 3g.40gb + 4 × 1g.10gb"


def test_an_unknown_profile_of_a_gpu_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"A100-80GB has no MIG profile 1g\.5gb. It has 1g\.10gb, .*7g\.80gb"):
        stand_on(A100, {"1g.5gb": 1}, 1)
