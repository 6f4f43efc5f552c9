"""GPU placement: one typed value that determines node selector, resource name and tolerations."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from .base import LABEL_TEXT, ByteQuantity, Condition, Conditional, CpuQuantity, ObjectName, Section, Without, form
from .gpu_products import gpu_product
from .mig_cuts import most_on_one_gpu, stand_on, words
from .prices import Price

_PROFILE = r"^[1-7]g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)*)?$"
MigProfile = Annotated[str, form(_PROFILE, "a MIG profile, such as 1g.10gb, 3g.40gb or 1g.10gb+me", "MIG profile")]

Product = Annotated[
    str,
    form(
        f"^{LABEL_TEXT}$",
        "the value of the node label nvidia.com/gpu.product without -MIG-… or -SHARED, such as NVIDIA-A100-SXM4-80GB",
        "GPU product",
    ),
    Without(r"-(MIG-.*|SHARED)$", "has a suffix that the device plugin adds: remove -MIG-… or -SHARED"),
]

_WANTED = "GPU product. The default is any."
WantedProduct = Annotated[Product | None, Field(description=_WANTED)]

_WHICH_PRODUCT = (
    "MIG strategy single needs a product, because only the node label nvidia.com/gpu.product distinguishes profiles: "
    "set product to its value without the suffix -MIG-…"
)
_WHICH_SLICE = "deviceClass mig.nvidia.com is for slices: set profile, or set deviceClass to gpu.nvidia.com"
_NO_SLICE = "deviceClass gpu.nvidia.com is for whole GPUs: remove profile, or set deviceClass to mig.nvidia.com"
_TWO_WAYS = "mig and sharing exclude each other: remove one"


class MigPlacement(Conditional):
    """One MIG slice for each replica."""

    conditions: ClassVar = (
        Condition(
            "a_strategy_of_single_names_a_product", _WHICH_PRODUCT, needs=("product",), when={"strategy": ("single",)}
        ),
    )
    kind: Literal["mig"]
    profile: MigProfile
    """Profile."""
    product: WantedProduct = None
    strategy: Literal["mixed", "single"] = "mixed"
    """MIG strategy of the device plugin: mixed has a resource for each profile."""


class WholeGpuPlacement(Section):
    """Whole GPUs for each replica."""

    kind: Literal["gpu"]
    count: Annotated[int, Field(ge=1, le=16)] = 1
    """GPUs for each replica."""
    product: WantedProduct = None


class SharedGpuPlacement(Section):
    """A share of a GPU. Time-slicing does not isolate memory."""

    kind: Literal["time-slicing", "mps"]
    product: WantedProduct = None
    renamed: bool = True
    """Whether the plugin names shares nvidia.com/gpu.shared (renameByDefault)."""


class DraPlacement(Conditional):
    """A device by Dynamic Resource Allocation (Kubernetes 1.34 or later)."""

    conditions: ClassVar = (
        Condition(
            "slices_have_a_profile", _WHICH_SLICE, needs=("profile",), when={"deviceClass": ("mig.nvidia.com", None)}
        ),
        Condition(
            "whole_gpus_have_no_profile", _NO_SLICE, forbids=("profile",), when={"deviceClass": ("gpu.nvidia.com",)}
        ),
    )
    kind: Literal["dra"]
    device_class: ObjectName = "mig.nvidia.com"
    """DeviceClass, such as gpu.nvidia.com."""
    profile: MigProfile | None = None
    """Profile. Without one, the replica gets a whole device."""
    product: WantedProduct = None


class CpuPlacement(Section):
    """No GPU."""

    kind: Literal["cpu"]


Placement = Annotated[
    MigPlacement | WholeGpuPlacement | SharedGpuPlacement | DraPlacement | CpuPlacement, Field(discriminator="kind")
]


class MigLayout(Section):
    """MIG slices on GPUs of a node."""

    gpus: Annotated[int, Field(ge=1, le=16)] | None = None
    """GPUs of each node with this layout. The default is all, or one in a list of layouts."""
    strategy: Literal["mixed", "single", "dra"] = "mixed"
    """Provider of the slices: the device plugin (mixed, single), or Dynamic Resource Allocation."""
    slices: dict[MigProfile, Annotated[int, Field(ge=1, le=7)]]
    """Slices of each profile on one GPU. Empty for MIG mode without slices."""


Layouts = Annotated[
    Annotated[MigLayout, Tag("every")] | Annotated[tuple[MigLayout, ...], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "every"),
]


class GpuSharing(Section):
    """Sharing of every GPU of the nodes without MIG."""

    kind: Literal["time-slicing", "mps"]
    """Processes take turns (time-slicing), or run together (MPS)."""
    replicas: Annotated[int, Field(ge=2, le=48)]
    """Shares of one GPU."""


class GpuNodes(Conditional):
    """A group of equal nodes in a data plane."""

    conditions: ClassVar = (Condition("cut_or_shared", _TWO_WAYS, forbids=("sharing",), when={"mig": ()}),)
    nodes: Annotated[int, Field(ge=1, le=10_000)]
    """Number of nodes."""
    product: Product
    """GPU product."""
    per_node: Annotated[int, Field(ge=1, le=16)]
    """GPUs of each node."""
    memory: ByteQuantity | None = None
    """Allocatable memory of each node. `tidegate check` refuses pools that request more."""
    cpu: CpuQuantity | None = None
    """Allocatable CPU of each node, likewise."""
    price: Price | None = None
    """Price of one GPU. Without it, previews show device hours."""
    mig: Layouts | None = None
    """MIG slices of each GPU, or a list of layouts. GPUs in no layout are whole."""
    sharing: GpuSharing | None = None
    """Sharing of each GPU without MIG."""

    @property
    def layouts(self) -> tuple[tuple[int, MigLayout], ...]:
        """Return the number of GPUs of each node for each layout."""
        if self.mig is None:
            return ()
        if isinstance(self.mig, MigLayout):
            return ((self.mig.gpus or self.per_node, self.mig),)
        return tuple((layout.gpus or 1, layout) for layout in self.mig)

    @property
    def whole(self) -> int:
        """Return the number of GPUs of each node without slices and sharing."""
        return 0 if self.sharing else self.per_node - sum(gpus for gpus, _ in self.layouts)

    @property
    def strategy(self) -> Literal["mixed", "single", "dra"] | None:
        """Return the strategy of the layouts, or None without slices."""
        return next((layout.strategy for _, layout in self.layouts), None)

    @model_validator(mode="after")
    def _gpus_of_a_node_are_cut_as_its_strategy_allows(self) -> Self:
        """Refuse more layouts than GPUs, several strategies on a node, and several profiles with strategy single."""
        if self.whole < 0:
            raise ValueError(f"the layouts have {self.per_node - self.whole} GPUs, but perNode is {self.per_node}")
        if len({layout.strategy for _, layout in self.layouts}) > 1:
            raise ValueError("the layouts of a node have several MIG strategies, but a node can have only one: set one")
        profiles = {profile for _, layout in self.layouts for profile in layout.slices}
        if self.strategy == "single" and (len(profiles) != 1 or self.whole):
            raise ValueError("MIG strategy single needs slices of one profile on every GPU: set strategy to mixed")
        return self

    @model_validator(mode="after")
    def _slices_fit_on_one_gpu(self) -> Self:
        """Refuse unknown profiles of the product, and slices that do not fit together on one GPU."""
        product = gpu_product(self.product)
        for slices in [layout.slices for _, layout in self.layouts] if product else ():
            assert product is not None
            for profile in slices:
                if profile not in product.profiles:
                    has = f"set one of {', '.join(product.profiles)}" if product.profiles else "it does not support MIG"
                    raise ValueError(f"{self.product} has no MIG profile {profile}: {has}")
            if not stand_on(product, slices, 1):
                what = f"these slices do not fit together on one {self.product}: {words(slices)}"
                raise ValueError(f"{what}. {words(most_on_one_gpu(product, slices))} would fit")
        return self
