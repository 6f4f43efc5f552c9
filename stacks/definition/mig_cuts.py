"""Placement of MIG slices on GPUs, by the places of NVIDIA's driver for the instances of each profile.

Source: NVIDIA MIG User Guide, "MIG Device Names" and the placements of `nvidia-smi mig -lgipp`. Most GPUs have eight
memory slices. The low half has space for a 4g, a 3g or two pairs. The high half has space for a 3g, or for two pairs,
one of them without its second compute slice. A 1g, or a 1g with double memory, fits there, but no 2g. A GPU with four
slices is only a low half. So these functions count instead of searching.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from .gpu_products import MEDIA, GpuProduct

Cut = dict[str, int]
"""Profile → slices of it on one GPU."""
_KINDS: Final = ((7, 8), (4, 4), (3, 4), (2, 2), (1, 2), (1, 1))
"""Compute and memory slices of all sizes, the hardest to place first."""


def fewest_gpus(product: GpuProduct, slices: Mapping[str, int]) -> int:
    """Return the smallest number of GPUs that hold these slices."""
    return bisect_left(range(sum(slices.values())), True, key=lambda gpus: stand_on(product, slices, gpus))


def stand_on(product: GpuProduct, slices: Mapping[str, int], gpus: int) -> bool:
    """Return whether `gpus` GPUs hold these slices. Raises ValueError for an unknown profile of the product."""
    seven, four, three, two, twin, one = map(len, _by_kind(product, slices).values())
    halves = gpus - seven  # Low halves. Most products have as many high halves.
    high = halves if product.slices[1] == 8 else 0
    low = halves - four - max(0, three - high)
    high = max(0, high - three)
    pairs = 2 * low + high - two - max(0, twin - high)
    media = sum(count for profile, count in slices.items() if MEDIA in profile)
    return min(halves, low, pairs, gpus - media) >= 0 and 2 * pairs + max(0, high - twin) >= one


def cuts(product: GpuProduct, slices: Mapping[str, int]) -> list[Cut]:
    """Return each cut of the fewest GPUs that hold exactly these slices. Only one slice can have media engines."""
    gpus = [Counter[str]() for _ in range(fewest_gpus(product, slices))]
    left = _by_kind(product, slices)

    def put(kind: tuple[int, int], places: list[Counter[str]]) -> list[Counter[str]]:
        """Put the slices of a kind on the first of these places, and return the remaining places."""
        some, left[kind] = left[kind][: len(places)], left[kind][len(places) :]
        for gpu, profile in zip(places, some, strict=False):
            gpu[profile] += 1
        return places[len(some) :]

    low = put((7, 8), gpus)
    high = put((3, 4), low) if product.slices[1] == 8 else []
    low = put((4, 4), low)
    low = put((3, 4), low)
    pairs = put((2, 2), [gpu for gpu in low for _ in range(2)] + high)
    high, pairs = put((1, 2), high), put((1, 2), pairs)
    put((1, 1), [gpu for gpu in pairs for _ in range(2)] + high)
    return [_in_order(product, gpu) for gpu in gpus]


def filled(product: GpuProduct, cut: Mapping[str, int], profiles: Iterable[str]) -> Cut:
    """Return a cut with as many additional slices of these profiles as fit, larger ones first."""
    full = Counter(cut)
    for profile in sorted(profiles, key=product.profiles.__getitem__, reverse=True):
        while stand_on(product, full + Counter({profile: 1}), 1):
            full[profile] += 1
    return _in_order(product, full)


def most_on_one_gpu(product: GpuProduct, slices: Mapping[str, int]) -> Cut:
    """Return the most of these slices that fit on one GPU: as many profiles, then as much memory, as possible."""
    found: list[Cut] = [{}]
    for profile, count in slices.items():
        more = ({**cut, profile: number} for cut in found for number in range(1, count + 1))
        found += [cut for cut in more if stand_on(product, cut, 1)]
    return max(found, key=lambda cut: (len(cut), -unused(product, cut)[1]))


def unused(product: GpuProduct, cut: Mapping[str, int]) -> tuple[int, int]:
    """Return the numbers of compute slices and memory slices of a GPU that a cut does not use."""
    compute, memory = (
        whole - sum(product.profiles[profile][part] * count for profile, count in cut.items())
        for part, whole in enumerate(product.slices)
    )
    return compute, memory


def part_of_gpu(product: GpuProduct, profile: str, cut: Mapping[str, int] | None = None) -> float:
    """Return the part of a GPU that a slice takes: the larger of its parts of the compute and of the memory slices.

    The parts of a cut sum to one GPU at most, and to exactly one if no other slice fits. If they sum to another number,
    each is divided by it.
    """

    def part(one: str) -> float:
        return max(mine / whole for mine, whole in zip(product.profiles[one], product.slices, strict=True))

    if not cut:
        return part(profile)
    total = sum(part(each) * count for each, count in cut.items())
    return part(profile) / (total if filled(product, cut, product.plain) == dict(cut) else max(1.0, total))


def words(cut: Mapping[str, int]) -> str:
    """Return a cut as text: `1 × 3g.40gb + 4 × 1g.10gb`."""
    return " + ".join(f"{count} × {profile}" for profile, count in cut.items())


def _by_kind(product: GpuProduct, slices: Mapping[str, int]) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {kind: [] for kind in _KINDS}
    for profile, count in slices.items():
        if profile not in product.profiles:
            raise ValueError(f"{product.name} has no MIG profile {profile}. It has {', '.join(product.profiles)}")
        found[product.profiles[profile]] += [profile] * count
    return found


def _in_order(product: GpuProduct, cut: Mapping[str, int]) -> Cut:
    return {profile: cut[profile] for profile in [*product.profiles][::-1] if cut.get(profile)}
