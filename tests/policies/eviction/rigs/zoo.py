"""Models that hold memory, for a real Triton, published atomically."""

from pathlib import Path

from lab.local_plane.repository import Model, publish

PROGRAM = Path(__file__).with_name("ballast.py")
NUMBER = ("TYPE_INT32", "1")


def model(
    repository: Path, name: str, mib: int = 30, seconds: float = 0, fails: str = "", versions: tuple[int, ...] = (1,)
) -> None:
    parameters = {"mib": mib, "seconds": seconds, "fails": fails}
    outputs = [("OUTPUT", *NUMBER), ("VERSION", *NUMBER), ("NAME", "TYPE_STRING", "1")]
    made = Model(name, PROGRAM, [("INPUT", *NUMBER)], outputs, versions=versions, parameters=parameters)
    publish(made, repository, repository.parent / "staging")


def ensemble(repository: Path, name: str, *parts: str) -> None:
    names = ["INPUT", *(f"between{number}" for number in range(1, len(parts))), "OUTPUT"]
    steps = "".join(
        f'step {{ model_name: "{part}" model_version: -1 input_map {{ key: "INPUT" value: "{names[place]}" }} '
        f'output_map {{ key: "OUTPUT" value: "{names[place + 1]}" }} }}\n'
        for place, part in enumerate(parts)
    )
    made = Model(name, None, [("INPUT", *NUMBER)], [("OUTPUT", *NUMBER)], f"ensemble_scheduling {{\n{steps}}}\n")
    publish(made, repository, repository.parent / "staging")
