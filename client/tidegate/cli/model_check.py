"""`tidegate model check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ExitCode
from .output import Json, answering, print_json

if TYPE_CHECKING:
    from ..findings import Finding


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
        from ..triton.entries.checks import check_entry
        from ..triton.entries.entry import entries_in, read_entry

        folders = list(dict.fromkeys(entry for folder in folders for entry in entries_in(folder)))
        entries = {folder: read_entry(folder) for folder in folders}
        found = {folder: check_entry(entry, backends=backend, gpu=gpu) for folder, entry in entries.items()}
        if json:
            print_json([_plain(entry, findings) for entry, findings in found.items()])
        else:
            for entry, findings in found.items():
                _print(entry, findings)
        if any(findings if strict else errors(findings) for findings in found.values()):
            raise typer.Exit(ExitCode.FOUND)


def _plain(entry: Path, findings: "Sequence[Finding]") -> dict[str, object]:
    from dataclasses import asdict

    from ..findings import errors

    return {"entry": str(entry), "ok": not errors(findings), "findings": [asdict(finding) for finding in findings]}


def _print(entry: Path, findings: "Sequence[Finding]") -> None:
    from ..findings import errors

    for finding in findings:
        # With the folder in front, so that editors and terminals find the line.
        print(f"{entry / finding.where}: {finding.said}")
    wrong = len(errors(findings))
    said = [_count(wrong, "error"), _count(len(findings) - wrong, "warning")]
    print(f"{entry}: {' and '.join(filter(None, said)) or 'nothing found'}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}" if number else ""
