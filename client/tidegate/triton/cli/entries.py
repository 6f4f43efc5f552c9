"""`tidegate model new`: creates an entry of a Triton model repository."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ...errors import UsageError, hints_once
from ...names import nearest_of
from ...output import Json, Texts, exit_codes, note, print_json

if TYPE_CHECKING:
    from ..entries.write import NewEntry

_TENSOR = "NAME:TYPE:DIMS"


def _complete() -> list[str]:
    from ..entries.detect import Framework

    return list(Framework)


def new(
    name: Annotated[str, Argument(help="The model's name. Its entry is a directory of this name.")],
    source: Annotated[Path, Argument(help="The model's file, or a directory with a model.py.")],
    into: Annotated[Path, Option(help="The directory in which to create the entry.")] = Path("."),
    framework: Annotated[
        str, Option(autocompletion=_complete, help="The framework, if the suffix does not show it: onnx, python, …")
    ] = "",
    input_: Annotated[
        Texts,
        Option("--input", metavar=_TENSOR, help="image:FP32:3,-1: -1 is any size, empty parts come from the file."),
    ] = None,
    output: Annotated[Texts, Option(metavar=_TENSOR, help="An output, in the same format.")] = None,
    max_batch_size: Annotated[
        int, Option(metavar="N", min=0, help="The largest batch, 0 for none. DIMS do not include it.")
    ] = 0,
    dynamic_batching: Annotated[bool, Option("--dynamic-batching", help="Let Triton form batches.")] = False,
    json: Json = False,
) -> None:
    """Create an entry from a model: its files in Triton's layout, and a valid config.pbtxt that you can extend.

    The file's suffix or --framework selects the framework. Names, types and shapes are read from the file, which is
    never run. A language model's directory for an engine is an entry already.
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
    print(f"created {made.folder} ({made.framework})")
    print(config_text(made.config), end="")
    for text in hints_once(map(str, made.warnings)):
        note(text)
    for text in made.notes:
        note(f"note: {text}")
