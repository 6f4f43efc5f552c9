"""`tidegate model new`, `check` and `show`: entries of a Triton model repository."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ExitCode, UsageError
from .output import Json, answering, console, counted, note, print_json, print_table, size

if TYPE_CHECKING:
    from ..findings import Finding
    from ..triton.entries.show import Shown
    from ..triton.entries.write import NewEntry

Texts = list[str] | None
_TENSOR = "NAME:TYPE:DIMS"


def _complete() -> list[str]:
    from ..triton.entries.detect import Framework

    return list(Framework)


def new(
    name: Annotated[str, typer.Argument(help="The model's name; its entry is a folder of this name.")],
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE", help="The model's file or folder; several entries: an ensemble.")
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
        Texts, typer.Option(metavar="MODEL.TENSOR=NAME", help="Within an ensemble, another name for a step's tensor.")
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
        _print_new(made, json)


def check(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Entries, or model repositories, whose entries are all checked."),
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(help="A backend that the server has; give it once for each. Without it any will do."),
    ] = None,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--no-gpu", help="Whether the server has a GPU. Without it both will do.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors do.")] = False,
    json: Json = False,
) -> None:
    """Say what Triton would refuse or silently ignore in a model repository entry, before anything is copied.

    Nothing of the model is loaded or run. Exit code 1 where there are errors.
    """
    with answering():
        from ..findings import errors
        from ..kinds import kind_of_entry

        found = {}
        for folder in folders:
            kind = kind_of_entry(folder)
            for entry in kind.entries_in(folder):
                found[entry] = kind.check(entry, backends=backend, gpu=gpu)
        if json:
            print_json([_plain(entry, findings) for entry, findings in found.items()])
        else:
            for entry, findings in found.items():
                _print_findings(entry, findings)
        if any(findings if strict else errors(findings) for findings in found.values()):
            raise typer.Exit(ExitCode.FOUND)


def show(
    entry: Annotated[Path, typer.Argument(help="The entry's folder, which holds config.pbtxt.")], json: Json = False
) -> None:
    """Show an entry: its tensors, how Triton runs it, and an ensemble's steps as a drawing."""
    with answering():
        from ..kinds import kind_of_entry
        from ..triton.entries.show import Shown

        shown = kind_of_entry(entry).show(entry)
        if json or not isinstance(shown, Shown):
            print_json(shown.model_dump(mode="json"))
        else:
            _print_entry(shown)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("it is no text in UTF-8", where=str(file), why=str(error)) from None


def _print_new(made: "NewEntry", json: bool) -> None:
    from ..triton.entries.show import show_entry

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
    _print_entry(shown)
    for each in made.warnings:
        note(str(each))
    for text in made.notes:
        note(f"note: {text}")


def _print_entry(shown: "Shown") -> None:
    from ..triton.entries.show import draw

    versions = ", ".join(map(str, shown.versions)) or "none"
    print(f"{shown.name}: {shown.backend}, version {versions}, {shown.files} files, {size(shown.size)}")
    if shown.steps:
        console().print(draw(shown))
    else:
        rows = [
            (side, tensor.name, str(tensor), ", ".join(tensor.notes))
            for side, tensors in (("input", shown.inputs), ("output", shown.outputs))
            for tensor in tensors
        ]
        if rows:
            print_table(("", "tensor", "type and shape", ""), rows)
        else:
            print("its tensors are known once Triton has loaded it")
    if shown.settings:
        print(shown.settings)


def _plain(entry: Path, findings: "Sequence[Finding]") -> dict[str, object]:
    from dataclasses import asdict

    from ..findings import errors

    return {"entry": str(entry), "ok": not errors(findings), "findings": [asdict(finding) for finding in findings]}


def _print_findings(entry: Path, findings: "Sequence[Finding]") -> None:
    from ..findings import errors

    for finding in findings:
        # With the folder in front, so that editors and terminals find the line.
        print(f"{entry / finding.where}: {finding.said}")
    wrong = len(errors(findings))
    counts = {"error": wrong, "warning": len(findings) - wrong}
    said = [counted(count, what) for what, count in counts.items() if count]
    print(f"{entry}: {' and '.join(said) or 'nothing found'}")
