"""`tidegate model new`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .output import Json, answering, note, print_json

if TYPE_CHECKING:
    from ..triton.entries.write import NewEntry

Texts = list[str] | None
_TENSOR = "NAME:TYPE:DIMS"


def _complete() -> list[str]:
    from ..triton.entries.detect import Framework

    return list(Framework)


def new(
    name: Annotated[str, typer.Argument(help="The model's name; its entry is a folder of this name.")],
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE", help="The model's file or folder; several entries: an ensemble."),
    ],
    into: Annotated[Path, typer.Option("--into", help="The folder in which the entry is made.")] = Path("."),
    framework: Annotated[
        str,
        typer.Option(
            metavar="FRAMEWORK",
            autocompletion=_complete,
            help="What the model is made with, where its files do not tell, or not as they should: onnx, python, …",
        ),
    ] = "",
    input_: Annotated[
        Texts,
        typer.Option(
            "--input",
            metavar=_TENSOR,
            help="An input, such as image:FP32:3,224,224; -1 is any size. TYPE or DIMS may "
            "be empty for a tensor that the file tells of.",
        ),
    ] = None,
    output: Annotated[Texts, typer.Option("--output", metavar=_TENSOR, help="An output, written the same way.")] = None,
    max_batch_size: Annotated[
        int, typer.Option(metavar="N", min=0, help="The largest batch; 0 is none. DIMS leave it out.")
    ] = 0,
    dynamic_batching: Annotated[bool, typer.Option("--dynamic-batching", help="Let Triton form batches.")] = False,
    instances: Annotated[
        Texts, typer.Option(metavar="COUNT[:KIND[:GPUS]]", help="Copies that run at once: 2, 1:gpu:0,1 or 4:cpu.")
    ] = None,
    parameter: Annotated[Texts, typer.Option(metavar="KEY=VALUE", help="A parameter for the backend.")] = None,
    labels: Annotated[
        Texts, typer.Option(metavar="OUTPUT=FILE", help="A file with the names of an output's classes, a line each.")
    ] = None,
    link: Annotated[
        Texts,
        typer.Option(metavar="MODEL.TENSOR=NAME", help="Within an ensemble, another name for a step's tensor."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file with any other fields, as config.pbtxt has them: queues, priorities, sequences, accelerators, "
            "warm-up, …; the options count over it.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make an entry of a model: its files laid out for Triton, and a config.pbtxt that it takes.

    The framework, and the names, types and shapes of tensors, are read from the model's files, which are never run.
    """
    with answering():
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        from ..triton.entries.configure import Options, one_of, overlaid, pair
        from ..triton.entries.detect import Framework
        from ..triton.entries.text import parse_config
        from ..triton.entries.write import new_entry

        options = Options(
            input_ or (), output or (), max_batch_size, dynamic_batching, instances or (), parameter or ()
        )
        said = ModelConfig() if settings is None else parse_config(_text(settings), str(settings))
        made = new_entry(
            name, sources, into,
            framework=Framework(one_of(framework, list(Framework), "framework")) if framework else None,
            settings=overlaid(said, options.config()),
            labels={key: Path(file) for key, file in (pair(each, "--labels OUTPUT=FILE") for each in labels or ())},
            links=dict(pair(each, "--link MODEL.TENSOR=NAME") for each in link or ()),
        )  # fmt: skip
        _tell(made, json)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("it is no text in UTF-8", where=str(file), why=str(error)) from None


def _tell(made: "NewEntry", json: bool) -> None:
    from ..triton.entries.show import show_entry
    from .model_show import print_entry

    shown = show_entry(made.folder)
    if json:
        print_json(
            {
                "folder": str(made.folder),
                "framework": made.framework,
                "notes": made.notes,
                "warnings": [str(each) for each in made.warnings],
                "entry": shown.model_dump(mode="json"),
            }
        )
        return
    print(f"{made.folder} is there: {made.framework}")
    print_entry(shown, made.config)
    for each in made.warnings:
        note(str(each))
    for text in made.notes:
        note(f"note: {text}")
