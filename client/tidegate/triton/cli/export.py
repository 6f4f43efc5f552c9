"""`tidegate export`: creates an entry from a trained scikit-learn model."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ...output import Json, Text, counted, exit_codes, note, print_json, print_table


def export(
    source: Annotated[str, Argument(help="A model's directory, as MLflow saves and downloads it.")],
    folder: Annotated[Path, Argument(help="The directory to create. Its name is the model's.")],
    input_: Annotated[
        Text,
        Option(
            "--input", metavar="FILE", help="Inputs to compare (.json, .npy, .npz, .csv). Default: MLflow's example."
        ),
    ] = None,
    tolerance: Annotated[float, Option(min=0, help="Maximum relative difference of numbers (absolute near 0).")] = 1e-4,
    name: Annotated[Text, Option(help="Name of the model. Default: the directory's.")] = None,
    max_batch_size: Annotated[int, Option(metavar="N", min=0, help="The largest batch, 0 for none.")] = 64,
    trusted: Annotated[bool, Option("--trusted", help="Load a pickle, which runs its code.")] = False,
    json: Json = False,
) -> None:
    """Export a trained scikit-learn model to ONNX as an entry, if both give the same answers.

    The entry includes a golden request.
    """
    with exit_codes():
        from ...calling.files import read_inputs
        from ...life.checks import against_environments
        from ..export.entry import Export

        wanted = Export(source, folder, name or folder.resolve().name, tolerance, max_batch_size, trusted)
        done = wanted.run(None if input_ is None else read_inputs(input_))
        for finding in against_environments(folder, wanted.name):
            note(str(finding))
        if json:
            print_json(done)
            return
        print(f"created {done.folder}")
        print(f"compared with the original on {counted(done.rows, 'row')}, tolerance {tolerance:g}:")
        rows = [(each, "same" if most is None else f"{most:.3g}") for each, most in done.differences.items()]
        print_table(("output", "#largest difference"), rows)
        print(f"next: {done.then}")
