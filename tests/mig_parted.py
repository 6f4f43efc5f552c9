"""Public MIG layouts: the partitions of GPUs that NVIDIA publishes.

Sources: mig-parted's `config-default.yaml` and `examples/`, and the numbers of instances in the NVIDIA MIG User
Guide ("Supported MIG Profiles").
"""

from collections.abc import Iterator, Mapping

Cut = Mapping[str, int]


def _sevenths(one: int, double: int, half: int, whole: int) -> Cut:
    plain = {f"1g.{one}gb": 7, f"1g.{double}gb": 4, f"2g.{double}gb": 3, f"3g.{half}gb": 2, f"4g.{half}gb": 1}
    return {**plain, f"7g.{whole}gb": 1, f"1g.{one}gb+me": 1}


MOST: Mapping[str, Cut] = {
    "NVIDIA-A30": {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
    "NVIDIA-A100-PCIE-40GB": _sevenths(5, 10, 20, 40),
    "NVIDIA-A100-SXM4-80GB": _sevenths(10, 20, 40, 80),
    "NVIDIA-H100-80GB-HBM3": _sevenths(10, 20, 40, 80),
    "NVIDIA-H100-NVL": _sevenths(12, 24, 47, 94),
    "NVIDIA-GH200-480GB": _sevenths(12, 24, 48, 96),
    "NVIDIA-H200": _sevenths(18, 35, 71, 141),
    "NVIDIA-GH200-144G-HBM3e": _sevenths(18, 36, 72, 144),
    "NVIDIA-B200": _sevenths(23, 45, 90, 180),
    "NVIDIA-GB200": {**_sevenths(23, 47, 93, 186), **_sevenths(24, 47, 95, 189)},
    "NVIDIA-B300-SXM6-AC": _sevenths(34, 67, 135, 269),
    "NVIDIA-GB300": _sevenths(35, 70, 139, 278),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": {
        **{f"1g.24gb{engines}": 4 for engines in ("", "-me", "+gfx")},
        **{f"2g.48gb{engines}": 2 for engines in ("", "-me", "+gfx")},
        **dict.fromkeys(("1g.24gb+me", "1g.24gb+me.all", "2g.48gb+me.all", "4g.96gb", "4g.96gb+gfx"), 1),
    },
}
"""Node label of a product → profile → number that fits on one GPU."""

MIXED: Mapping[str, tuple[Cut, ...]] = {
    "NVIDIA-A30": ({"1g.6gb": 2, "2g.12gb": 1},),
    "NVIDIA-A100-PCIE-40GB": ({"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},),
    "NVIDIA-A100-SXM4-80GB": ({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, {"2g.20gb": 3, "1g.10gb": 1}),
    "NVIDIA-H100-80GB-HBM3": ({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},),
    "NVIDIA-H100-NVL": ({"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},),
    "NVIDIA-GH200-480GB": ({"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},),
    "NVIDIA-H200": ({"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},),
    "NVIDIA-GH200-144G-HBM3e": ({"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},),
    "NVIDIA-B200": ({"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},),
    "NVIDIA-GB200": ({"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1}, {"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1}),
    "NVIDIA-B300-SXM6-AC": ({"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},),
    "NVIDIA-GB300": ({"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": ({"1g.24gb": 2, "2g.48gb": 1},),
}

# The number of GPUs of a node with each layout. The others are whole.
SEVERAL: Mapping[str, tuple[tuple[tuple[int, Cut], ...], ...]] = {
    "NVIDIA-A100-PCIE-40GB": (
        ((1, {"1g.5gb": 7}), (1, {"2g.10gb": 3}), (1, {"3g.20gb": 2}), (1, {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1})),
    ),
    "NVIDIA-A100-SXM4-80GB": (((1, {"3g.40gb": 2}), (1, {"2g.20gb": 3, "1g.10gb": 1}), (1, {"1g.10gb": 7})),),
}


def cuts(product: str) -> Iterator[Cut]:
    yield {}
    yield from ({profile: count} for profile, count in MOST[product].items())
    yield from MIXED[product]
