"""`tidegate export`: an entry of a model as it was trained."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ...cli.output import Json, Text, answering, counted, note, print_json, print_table

if TYPE_CHECKING:
    from ..export.entry import Exported


def _targets() -> list[str]:
    from ..export.entry import TARGETS

    return list(TARGETS)


def export(
    source: Annotated[str, Argument(help="models:/NAME/VERSION, runs:/ID/PATH, a folder of MLflow's, or a file.")],
    folder: Annotated[Path, Argument(help="The entry's folder, which is made; its name is the model's.")],
    to: Annotated[str, Option(autocompletion=_targets, help="onnx, torchscript, tensorrt or tensorrt-llm.")] = "onnx",
    input_: Annotated[
        Text, Option("--input", metavar="FILE", help="Inputs to compare on: .json, .npy, .npz, .csv; MLflow's example.")
    ] = None,
    tolerance: Annotated[
        float, Option(min=0, help="How far numbers may be off, relative, and absolute about 0.")
    ] = 1e-4,
    name: Annotated[Text, Option(help="Name of the model; the folder's by default.")] = None,
    max_batch_size: Annotated[int, Option(metavar="N", min=0, help="The largest batch; 0 is none.")] = 64,
    trusted: Annotated[bool, Option("--trusted", help="Load a pickle or TorchScript, and so run its code.")] = False,
    image: Annotated[str, Option(help="TensorRT: the image in which the Job builds.")] = "",
    volume: Annotated[str, Option(metavar="CLAIM/PATH", help="TensorRT: where FOLDER will lie for the Job.")] = "",
    mig: Annotated[Text, Option(metavar="PROFILE", help="TensorRT: build on this slice, such as 1g.10gb.")] = None,
    json: Json = False,
) -> None:
    """Make an entry of a trained model, by its library's own exporter, once both have given the same answers.

    The golden request lies in it. For TensorRT the commands and the Job are written, and not run.
    """
    with answering():
        from ...calling.files import read_inputs
        from ...life.checks import against_environments
        from ..entries.configure import one_of
        from ..export.entry import TARGETS, Export

        wanted = Export(
            source, folder, name or folder.resolve().name, to=one_of(to, TARGETS, "--to"), tolerance=tolerance,
            max_batch_size=max_batch_size, trusted=trusted, image=image, volume=volume, mig=mig,
        )  # fmt: skip
        done = wanted.run(None if input_ is None else read_inputs(input_))
        if not to.startswith("tensorrt"):
            for finding in against_environments(folder, wanted.name):
                note(str(finding))
        if json:
            print_json(done)
        else:
            _print(done, wanted.tolerance)
        if to.startswith("tensorrt"):
            sys.stdout.flush()  # what is there comes before what is not, in one stream, too
            note(f"NOT BUILT, AND NOT TRIED: it needs a GPU. {folder}/job.yaml builds it there by {folder}/build.sh")


def _print(done: "Exported", tolerance: float) -> None:
    print(f"{done.folder} is there")
    if done.differences is not None:
        print(f"compared with the original on {counted(done.rows, 'row')}, tolerance {tolerance:g}:")
        rows = [(name, "same" if most is None else f"{most:.3g}") for name, most in done.differences.items()]
        print_table(("output", "#largest difference"), rows)
    print(f"next: {done.then}")
