"""The zoo: models of different sizes, which together need four times the memory of their slice.

They use numpy in Triton's Python backend, so they need no GPU. They create their weights when they load: the memory
that they use is real, but the repository on disk is small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.local_plane.repository import Model

MIB = 1 << 20
PROGRAMS = Path(__file__).parent / "models"
PROCESS_MIB = 21
"""The memory of a model's process without its weights: Python and numpy (17 MiB measured), rounded up."""


@dataclass(frozen=True)
class Animal:
    """A model with weights that multiplies by its factor."""

    name: str
    mebibytes: int  # With its process.
    factor: int
    declared: bool = True  # Whether the definition has its footprint. If not, the policy measures it.

    @property
    def bytes(self) -> int:
        return self.mebibytes * MIB

    def model(self, versions: Sequence[int] = (1,)) -> Model:
        numbers = {"factor": self.factor, "mebibytes": self.mebibytes - PROCESS_MIB}
        return _numpy_model(self.name, "animal", numbers, versions)


ANIMALS = (
    Animal("ant", 48, 2),
    Animal("bee", 48, 3),
    Animal("cat", 64, 5),
    Animal("dog", 64, 7),
    Animal("emu", 80, 11),
    Animal("fox", 80, 13),
    Animal("goat", 96, 17, declared=False),
    Animal("hare", 96, 19),
    Animal("ibex", 112, 23),
    Animal("lynx", 128, 29),
    Animal("moose", 144, 31),
    Animal("orca", 192, 37),
    Animal("whale", 240, 41),
)
SINGER = "canary"
SINGER_MIB = 64
BROKEN = Animal("unicorn", 80, 43)  # Its first version fails to load.
HERD, HERD_OF = "herd", ("ant", "bee")  # An ensemble: the two models multiply one after the other.
HERD_FACTOR = 6
CAPACITY_BYTES = 384 * MIB
NEWCOMER = Animal("newt", 48, 47)
RESIDENT = Animal("sparrow", 48, 53)
"""The preload server's models. It has RESIDENT from the start, and NEWCOMER is published while it serves."""

FACTORS = {animal.name: animal.factor for animal in (*ANIMALS, BROKEN, NEWCOMER, RESIDENT)} | {HERD: HERD_FACTOR}
DECLARED = {animal.name: animal.bytes for animal in (*ANIMALS, BROKEN) if animal.declared} | {
    SINGER: SINGER_MIB * MIB,
    HERD: 0,
}
"""Footprints in bytes, as in a definition. An ensemble needs no memory besides that of its parts."""
SIZES = DECLARED | {animal.name: animal.bytes for animal in ANIMALS}
IDLE_SECONDS = {"whale": 10}  # Models with a longer idle limit than the pool's.
ON_DEMAND = tuple(SIZES)  # Every model of the on-demand server.
PRELOADED = (RESIDENT.name, NEWCOMER.name)


def singer() -> Model:
    """Return the model that streams."""
    numbers = {"mebibytes": SINGER_MIB - PROCESS_MIB}
    model = _numpy_model(SINGER, "singer", numbers, (1,))
    inputs, outputs = [("COUNT", "TYPE_INT32", "1"), ("DELAY", "TYPE_INT32", "1")], [("NOTE", "TYPE_INT32", "1")]
    more = f"{model.more}model_transaction_policy {{ decoupled: true }}\n"
    return replace(model, inputs=inputs, outputs=outputs, more=more)


def broken() -> Model:
    """Return the model that fails to load."""
    whole = BROKEN.model()
    return replace(whole, parameters={**whole.parameters, "fails": "horn.npy, its weights, is missing"})


def herd() -> Model:
    """Return the ensemble."""
    first, second = HERD_OF
    steps = (
        f'step {{ model_name: "{first}" model_version: -1 input_map {{ key: "INPUT" value: "INPUT" }} '
        'output_map { key: "OUTPUT" value: "BETWEEN" } }\n'
        f'step {{ model_name: "{second}" model_version: -1 input_map {{ key: "INPUT" value: "BETWEEN" }} '
        'output_map { key: "OUTPUT" value: "OUTPUT" } }\n'
    )
    vector = ("TYPE_FP32", "-1")
    return Model(HERD, None, [("INPUT", *vector)], [("OUTPUT", *vector)], f"ensemble_scheduling {{\n{steps}}}\n")


def on_demand() -> tuple[Model, ...]:
    """Return all that is in the on-demand server's repository at the start."""
    return (*(animal.model() for animal in ANIMALS), singer(), herd(), broken())


def _numpy_model(name: str, program: str, numbers: dict[str, int], versions: Sequence[int]) -> Model:
    return Model(
        name,
        PROGRAMS / f"{program}.py",
        [("INPUT", "TYPE_FP32", "-1")],
        [("OUTPUT", "TYPE_FP32", "-1"), ("VERSION", "TYPE_INT32", "1")],
        # The configuration, which is published last, selects the version that serves.
        f"version_policy {{ specific {{ versions: [ {max(versions)} ] }} }}\n",
        versions=versions,
        parameters=numbers,
    )
