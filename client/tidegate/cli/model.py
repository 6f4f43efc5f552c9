"""`tidegate model check`: checks entries of a model repository, for every kind of server."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from ..errors import ExitCode, hints_once
from ..findings import Finding, Severity, errors
from ..output import Json, Texts, Trusted, counted, exit_codes, print_json


def check(
    folders: Annotated[list[Path], Argument(metavar="FOLDER...", help="Entries, or model repositories.")],
    backend: Annotated[Texts, Option(help="A backend that Triton has. Can be repeated. Default: any.")] = None,
    gpus: Annotated[int | None, Option(min=0, help="GPUs of each Triton replica. Default: any number.")] = None,
    release: Annotated[str | None, Option(metavar="26.08", help="Triton's release, as in its image tag.")] = None,
    trusted: Trusted = False,
    strict: Annotated[bool, Option("--strict", help="Treat warnings as errors.")] = False,
    json: Json = False,
) -> None:
    """Report what servers would refuse or silently ignore in an entry.

    An entry is the directory of a Triton model (config.pbtxt and a version directory) or of a language model
    (config.json, a tokenizer and *.safetensors). Loads and runs nothing of the model. Exit code 1 if there are errors.
    With TIDEGATE_ENVIRONMENTS set, warnings name the servers there that could not serve it.
    """
    with exit_codes():
        from ..kinds import kind_of_entry
        from ..life.checks import against_environments, memory_unknown

        found = {}
        for folder in folders:
            kind = kind_of_entry(folder)
            for entry in kind.entries_in(folder) or [folder]:
                found[entry] = kind.check(entry, backends=backend, gpus=gpus, release=release, trusted=trusted)
                found[entry] += [*against_environments(entry, entry.resolve().name), *memory_unknown(entry)]
        if json:
            print_json([
                {"entry": entry, "ok": not errors(findings), "findings": findings} for entry, findings in found.items()
            ])  # fmt: skip
        else:
            for entry, findings in found.items():
                _print_findings(entry, findings)
        grave = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        if any(each.severity in grave for findings in found.values() for each in findings):
            raise Exit(ExitCode.FOUND)


def _print_findings(entry: Path, findings: list[Finding]) -> None:
    # The path comes first, so that editors and terminals find the line.
    for text in hints_once(f"{entry / finding.where}: {finding.text}" for finding in findings):
        print(text)
    counts = Counter(each.severity for each in findings)
    totals = [counted(counts[each], each.value) for each in Severity if counts[each]]
    print(f"{entry}: {' and '.join(totals) or 'nothing found'}")
