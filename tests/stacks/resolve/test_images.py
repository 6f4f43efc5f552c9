"""Image references: mirrors, tags and digests."""

import pytest

from stacks.definition.images import Image
from stacks.resolve.images import mirrored


@pytest.mark.parametrize(
    ("repository", "registries", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver", {}, "nvcr.io/nvidia/tritonserver"),
        (
            "nvcr.io/nvidia/tritonserver",
            {"nvcr.io": "mirror.example.com/nvcr"},
            "mirror.example.com/nvcr/nvidia/tritonserver",
        ),
        ("nvcr.io/nvidia/tritonserver", {"quay.io": "mirror.example.com"}, "nvcr.io/nvidia/tritonserver"),
        ("library/busybox", {"docker.io": "mirror.example.com/hub"}, "mirror.example.com/hub/library/busybox"),
        ("busybox", {"docker.io": "mirror.example.com"}, "mirror.example.com/busybox"),
        ("busybox", {}, "busybox"),
        ("localhost:5000/a", {"localhost:5000": "mirror.example.com"}, "mirror.example.com/a"),
        ("localhost/a", {"localhost": "mirror.example.com"}, "mirror.example.com/a"),
    ],
)
def test_an_image_comes_from_the_mirror_of_its_registry(
    repository: str, registries: dict[str, str], expected: str
) -> None:
    assert mirrored(Image(name="x", repository=repository, tag="1"), registries) == expected
