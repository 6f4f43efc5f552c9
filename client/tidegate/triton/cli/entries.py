"""`tidegate model new`: makes an entry of a Triton model repository."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ...cli.output import Json, Texts, exit_codes, note, print_json
from ...errors import UsageError, hints_once
from ...names import nearest_of

if TYPE_CHECKING:
    from ..entries.write import NewEntry

_TENSOR = "NAME:TYPE:DIMS"


def _complete() -> list[str]:
    from ..entries.detect import Framework

    return list(Framework)


def new(
    name: Annotated[str, Argument(help="The model's name; its entry is a folder of this name.")],
    source: Annotated[Path, Argument(help="The model's file, or a folder with a model.py.")],
    into: Annotated[Path, Option(help="The folder in which the entry is made.")] = Path("."),
    framework: Annotated[
        str,
        Option(autocompletion=_complete, help="What it is made with, where the suffix does not tell: onnx, python, …"),
    ] = "",
    input_: Annotated[
        Texts, Option("--input", metavar=_TENSOR, help="image:FP32:3,-1: -1 is any size; empty is what the file says.")
    ] = None,
    output: Annotated[Texts, Option(metavar=_TENSOR, help="An output, written the same way.")] = None,
    max_batch_size: Annotated[
        int, Option(metavar="N", min=0, help="The largest batch; 0 is none. DIMS leave it out.")
    ] = 0,
    dynamic_batching: Annotated[bool, Option("--dynamic-batching", help="Let Triton form batches.")] = False,
    json: Json = False,
) -> None:
    """Make an entry of a model: its files laid out for Triton, and a config.pbtxt that it takes, for you to add to.

    The framework goes by the file's suffix, or by --framework; names, types and shapes are read from the file,
    which is never run. A language model's folder for an engine is an entry as it is.
    """
    with exit_codes():
        from ..entries.configure import Options
        from ..entries.detect import Framework
        from ..entries.write import new_entry

        options = Options(input_ or (), output or (), max_batch_size, dynamic_batching)
        if framework and framework not in {*Framework}:
            raise UsageError(f"there is no framework {framework!r}", do=nearest_of(framework, Framework, "frameworks"))
        known = Framework(framework) if framework else None
        made = new_entry(name, source, into, options, framework=known)
        _print_new(made, json)


def _print_new(made: "NewEntry", json: bool) -> None:
    from google.protobuf.json_format import MessageToDict

    from ..entries.text import config_text

    if json:
        document = {"folder": made.folder, "framework": made.framework, "notes": made.notes}
        config = MessageToDict(made.config, preserving_proto_field_name=True)
        print_json(document | {"warnings": [str(each) for each in made.warnings], "config": config})
        return
    print(f"{made.folder} is there: {made.framework}")
    print(config_text(made.config), end="")
    for text in hints_once(map(str, made.warnings)):
        note(text)
    for text in made.notes:
        note(f"note: {text}")
