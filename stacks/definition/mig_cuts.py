"""Which slices stand on how many GPUs, by the places that NVIDIA's driver has for the instances of each profile.

Source: NVIDIA MIG User Guide, "MIG Device Names" and the placements of `nvidia-smi mig -lgipp`. A GPU has eight memory
slices. Its low half holds a 4g, a 3g or two pairs; its high half a 3g, or a pair and one that lacks its second compute
slice: there a 1g has place, or the 1g of twice the memory, and no 2g. So what fits is counted, and not searched for.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from .gpu_products import GpuProduct

Cut = dict[str, int]
"""Profile → slices of it on one GPU."""
COMPUTE_SLICES: Final = 7
MEMORY_SLICES: Final = 8
_KINDS: Final = ((7, 8), (4, 4), (3, 4), (2, 2), (1, 2), (1, 1))
"""Compute and memory slices of the six profiles that each product has, the hardest to place first."""


def fewest_gpus(product: GpuProduct, slices: Mapping[str, int]) -> int:
    """Return on how many GPUs these slices stand, where each GPU is cut as serves best."""
    return fewest(sum(slices.values()), lambda gpus: stand_on(product, slices, gpus))


def fewest(most: int, do: Callable[[int], bool]) -> int:
    """Return the least number that does, where all larger ones do too; `most` is taken to do."""
    return bisect_left(range(most), True, key=do)


def stand_on(product: GpuProduct, slices: Mapping[str, int], gpus: int) -> bool:
    """Say whether so many GPUs hold these slices; ValueError for a profile that the product has not."""
    seven, four, three, two, twin, one = _counts(product, slices)
    halves = gpus - seven  # Low ones, and as many high ones.
    low = halves - four - max(0, three - halves)
    high = max(0, halves - three)
    pairs = 2 * low + high - two - max(0, twin - high)
    return halves >= 0 and low >= 0 and pairs >= 0 and 2 * pairs + max(0, high - twin) >= one


def cuts(product: GpuProduct, slices: Mapping[str, int]) -> list[Cut]:
    """Return how each of the fewest GPUs that hold these slices is cut, to hold them and nothing else."""
    gpus = [Counter[str]() for _ in range(fewest_gpus(product, slices))]
    counts = dict(zip(_KINDS, _counts(product, slices), strict=True))
    names = {_kind(product, profile): profile for profile in product.profiles}

    def put(kind: tuple[int, int], places: list[Counter[str]]) -> list[Counter[str]]:
        """Put the slices of a kind on the first of these places; return those that are left."""
        some = counts[kind]
        for gpu in places[:some]:
            gpu[names[kind]] += 1
        counts[kind] = max(0, some - len(places))
        return places[some:]

    low = put((7, 8), gpus)
    high, low = put((3, 4), low), put((4, 4), low)
    low = put((3, 4), low)
    pairs = put((2, 2), [gpu for gpu in low for _ in range(2)] + high)
    high, pairs = put((1, 2), high), put((1, 2), pairs)
    put((1, 1), [gpu for gpu in pairs for _ in range(2)] + high)
    return [_in_order(product, gpu) for gpu in gpus]


def filled(product: GpuProduct, cut: Mapping[str, int], profiles: Iterable[str]) -> Cut:
    """Return a cut with as many more slices of these profiles as still have a place, larger ones first."""
    full = Counter(cut)
    for profile in sorted(profiles, key=lambda each: _kind(product, each), reverse=True):
        while stand_on(product, full + Counter({profile: 1}), 1):
            full[profile] += 1
    return _in_order(product, full)


def most_on_one_gpu(product: GpuProduct, slices: Mapping[str, int]) -> Cut:
    """Return the most of these slices that stand on one GPU together: of as many kinds, then as much, as can be."""
    found: list[Cut] = [{}]
    for profile, count in slices.items():
        more = ({**cut, profile: number} for cut in found for number in range(1, count + 1))
        found += [cut for cut in more if stand_on(product, cut, 1)]
    return max(found, key=lambda cut: (len(cut), -unused(product, cut)[1]))


def unused(product: GpuProduct, cut: Mapping[str, int]) -> tuple[int, int]:
    """Return how many compute slices (of 7) and memory slices (of 8) of a GPU belong to none of a cut's slices."""
    kinds = {profile: _kind(product, profile) for profile in cut}
    compute, memory = (sum(kinds[profile][part] * count for profile, count in cut.items()) for part in (0, 1))
    return COMPUTE_SLICES - compute, MEMORY_SLICES - memory


def part_of_gpu(product: GpuProduct | None, profile: str) -> float:
    """Return the part of a GPU that a slice takes: the larger of its shares of compute and memory slices.

    Of a product that is not known it is the share of compute slices.
    """
    memory = product.profiles.get(profile, 0) if product else 0
    return max(int(profile[0]) / COMPUTE_SLICES, memory / MEMORY_SLICES)


def words(cut: Mapping[str, int]) -> str:
    """Return a cut for people: `1 × 3g.40gb + 4 × 1g.10gb`."""
    return " + ".join(f"{count} × {profile}" for profile, count in cut.items())


def _kind(product: GpuProduct, profile: str) -> tuple[int, int]:
    return int(profile[0]), product.profiles[profile]


def _counts(product: GpuProduct, slices: Mapping[str, int]) -> list[int]:
    by_kind: Counter[tuple[int, int]] = Counter()
    for profile, count in slices.items():
        if profile not in product.profiles:
            raise ValueError(f"{product.name} has no MIG profile {profile}; it has {', '.join(product.profiles)}")
        by_kind[_kind(product, profile)] += count
    return [by_kind[kind] for kind in _KINDS]


def _in_order(product: GpuProduct, cut: Mapping[str, int]) -> Cut:
    return {profile: cut[profile] for profile in [*product.profiles][::-1] if cut.get(profile)}
