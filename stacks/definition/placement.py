"""GPU placement: one typed value from which node selector, resource key and tolerations all come."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from .base import LABEL_TEXT, ByteQuantity, Condition, Conditional, CpuQuantity, ObjectName, Section, Without, form
from .gpu_products import gpu_product
from .mig_cuts import most_on_one_gpu, stand_on, words
from .prices import Price

_PROFILE = r"^[1-7]g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)*)?$"
MigProfile = Annotated[str, form(_PROFILE, "a MIG profile, such as 1g.10gb, 3g.40gb or 1g.10gb+me")]

Product = Annotated[
    str,
    form(f"^{LABEL_TEXT}$", "the value of a node label, such as NVIDIA-A100-SXM4-80GB"),
    Without(r"-(MIG-.*|SHARED)$", "carries an ending that the device plugin adds; leave -MIG-… and -SHARED out"),
]

_WANTED = "GPU product as its node label `nvidia.com/gpu.product` says it, such as NVIDIA-A100-SXM4-80GB; any without."
WantedProduct = Annotated[Product | None, Field(description=_WANTED)]

_WHICH_PRODUCT = (
    "MIG strategy single needs a product: only the node label nvidia.com/gpu.product tells one profile from another; "
    "add it, as the label says it without its -MIG-… ending"
)
_WHICH_SLICE = "deviceClass mig.nvidia.com gives slices: say which profile, or use gpu.nvidia.com"
_NO_SLICE = "deviceClass gpu.nvidia.com gives whole GPUs: take profile away, or use mig.nvidia.com"
_TWO_WAYS = "mig and sharing cannot stand together: a GPU is cut into slices, or shared"


class MigPlacement(Conditional):
    """One MIG slice for each replica."""

    conditions: ClassVar = (
        Condition(
            "a_strategy_of_single_names_a_product", _WHICH_PRODUCT, needs=("product",), when={"strategy": ("single",)}
        ),
    )
    kind: Literal["mig"]
    profile: MigProfile
    """Profile of the slice."""
    product: WantedProduct = None
    strategy: Literal["mixed", "single"] = "mixed"
    """The device plugin's MIG strategy on those nodes: mixed names a resource for each profile, single does not."""


class WholeGpuPlacement(Section):
    """Whole GPUs for each replica."""

    kind: Literal["gpu"]
    count: Annotated[int, Field(ge=1, le=16)] = 1
    """GPUs for each replica."""
    product: WantedProduct = None


class SharedGpuPlacement(Section):
    """A share of a GPU by time-slicing or MPS; time-slicing does not isolate memory."""

    kind: Literal["time-slicing", "mps"]
    product: WantedProduct = None
    renamed: bool = True
    """Whether the device plugin renames the shared resource to nvidia.com/gpu.shared (renameByDefault)."""


class DraPlacement(Conditional):
    """A device by Dynamic Resource Allocation (Kubernetes 1.34 and later)."""

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
    """DeviceClass, such as gpu.nvidia.com or mig.nvidia.com."""
    profile: MigProfile | None = None
    """MIG profile to ask for; the whole device without one."""
    product: WantedProduct = None


class CpuPlacement(Section):
    """No GPU."""

    kind: Literal["cpu"]


Placement = Annotated[
    MigPlacement | WholeGpuPlacement | SharedGpuPlacement | DraPlacement | CpuPlacement, Field(discriminator="kind")
]


class MigLayout(Section):
    """How GPUs of a node are cut."""

    gpus: Annotated[int, Field(ge=1, le=16)] | None = None
    """GPUs of each node that are cut so; the others are whole. Every GPU without it, and in a list of layouts one."""
    strategy: Literal["mixed", "single", "dra"] = "mixed"
    """How slices are handed out: by the device plugin (mixed, single), or by Dynamic Resource Allocation."""
    slices: dict[MigProfile, Annotated[int, Field(ge=1, le=7)]]
    """Slices of each profile on one GPU; none of a GPU in MIG mode that is not cut."""


Layouts = Annotated[
    Annotated[MigLayout, Tag("every")] | Annotated[tuple[MigLayout, ...], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "every"),
]


class GpuSharing(Section):
    """How every GPU of a node group is shared without MIG."""

    kind: Literal["time-slicing", "mps"]
    """How: in turns (time-slicing), or together (MPS)."""
    replicas: Annotated[int, Field(ge=2, le=48)]
    """Shares of one GPU."""


class GpuNodes(Conditional):
    """Nodes of one kind in a data plane."""

    conditions: ClassVar = (Condition("cut_or_shared", _TWO_WAYS, forbids=("sharing",), when={"mig": ()}),)
    nodes: Annotated[int, Field(ge=1, le=10_000)]
    """How many nodes."""
    product: Product
    """GPU product as its node label `nvidia.com/gpu.product` says it, without the -MIG-… or -SHARED ending."""
    per_node: Annotated[int, Field(ge=1, le=16)]
    """GPUs in each node."""
    memory: ByteQuantity | None = None
    """Memory that pods can have in each node, as `kubectl describe node` has it under Allocatable; pools that ask for
    more are refused. Not looked at without."""
    cpu: CpuQuantity | None = None
    """CPU cores that pods can have in each node, as `kubectl describe node` has them under Allocatable; pools that ask
    for more are refused. Not looked at without."""
    price: Price | None = None
    """What one of these GPUs costs; without it previews count device hours, and no money."""
    mig: Layouts | None = None
    """How each GPU is cut, or a list of layouts if the GPUs of a node are cut in several ways: those in no layout are
    whole. All are whole without it and without sharing."""
    sharing: GpuSharing | None = None
    """How each GPU is shared without MIG."""

    @property
    def layouts(self) -> tuple[tuple[int, MigLayout], ...]:
        """How many GPUs of each node are cut in which way."""
        if self.mig is None:
            return ()
        if isinstance(self.mig, MigLayout):
            return ((self.mig.gpus or self.per_node, self.mig),)
        return tuple((layout.gpus or 1, layout) for layout in self.mig)

    @property
    def whole(self) -> int:
        """GPUs of each node that are neither cut nor shared."""
        return 0 if self.sharing else self.per_node - sum(gpus for gpus, _ in self.layouts)

    @property
    def strategy(self) -> Literal["mixed", "single", "dra"] | None:
        """How slices are handed out; None without slices."""
        return next((layout.strategy for _, layout in self.layouts), None)

    @model_validator(mode="after")
    def _gpus_of_a_node_are_cut_as_its_strategy_can_tell(self) -> Self:
        """Each GPU is in one layout, and all slices of a node are handed out in one way."""
        if self.whole < 0:
            raise ValueError(f"the layouts are of {self.per_node - self.whole} GPUs, and perNode is {self.per_node}")
        if len({layout.strategy for _, layout in self.layouts}) > 1:
            raise ValueError("the layouts of a node have several MIG strategies, and a node has one")
        profiles = {profile for _, layout in self.layouts for profile in layout.slices}
        if self.strategy == "single" and (len(profiles) != 1 or self.whole):
            raise ValueError("MIG strategy single needs slices of one profile on every GPU; use mixed for several")
        return self

    @model_validator(mode="after")
    def _slices_fit_on_one_gpu(self) -> Self:
        """The product has these profiles, and its placements hold them together."""
        product = gpu_product(self.product)
        for slices in [layout.slices for _, layout in self.layouts] if product else ():
            assert product is not None
            for profile in slices:
                if profile not in product.profiles:
                    has = f"it has {', '.join(product.profiles)}" if product.profiles else "MIG cannot cut it"
                    raise ValueError(f"{self.product} has no MIG profile {profile}; {has}")
            if not stand_on(product, slices, 1):
                what = f"these slices do not fit on one {self.product} together: {words(slices)}"
                raise ValueError(f"{what}; {words(most_on_one_gpu(product, slices))} would")
        return self
