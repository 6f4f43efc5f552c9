"""The zoo: models of different sizes, which together need four times the room that they get.

They are numpy in Triton's Python backend, so that they need no GPU, and their weights are made when they are loaded:
the memory that they take is real, and the repository on disk is small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.local_plane.repository import Model

MIB = 1 << 20
PROGRAMS = Path(__file__).parent / "models"
PROCESS_MIB = 21
"""What a model takes besides its weights, and a bit: a process with Python and numpy (17 where it was measured)."""


@dataclass(frozen=True)
class Animal:
    """A model with weights; it multiplies by its factor."""

    name: str
    mebibytes: int  # All that it takes.
    factor: int
    declared: bool = True  # Whether the definition says how much it takes; else the policy finds out.

    @property
    def bytes(self) -> int:
        """All that it takes."""
        return self.mebibytes * MIB

    def model(self, versions: Sequence[int] = (1,)) -> Model:
        """Return it as it is published."""
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
BROKEN = Animal("unicorn", 80, 43)  # Its first version fails to load; the second is whole.
HERD, HERD_OF = "herd", ("ant", "bee")  # An ensemble: what goes in is multiplied by one after the other.
HERD_FACTOR = 6
CAPACITY_BYTES = 384 * MIB
NEWCOMER = Animal("newt", 48, 47)
RESIDENT = Animal("sparrow", 48, 53)
"""Those that the preload server has: one from the start, one that is published while it serves."""

FACTORS = {animal.name: animal.factor for animal in (*ANIMALS, BROKEN, NEWCOMER, RESIDENT)} | {HERD: HERD_FACTOR}
DECLARED = {animal.name: animal.bytes for animal in (*ANIMALS, BROKEN) if animal.declared} | {
    SINGER: SINGER_MIB * MIB,
    HERD: 0,
}
"""Footprints as a definition declares them, in bytes; an ensemble takes nothing besides what its parts take."""
SIZES = DECLARED | {animal.name: animal.bytes for animal in ANIMALS}
IDLE_SECONDS = {"whale": 10}  # Those that stay longer than the pool's idle limit says: they are dear to load.
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
    return replace(whole, parameters={**whole.parameters, "fails": "horn.npy, its weights, is not in its folder"})


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
        # Which version serves is said by the configuration, which is published last.
        f"version_policy {{ specific {{ versions: [ {max(versions)} ] }} }}\n",
        versions=versions,
        parameters=numbers,
    )
