"""`tidegate model check`: entries of a model repository, whatever kind of server it is for."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from ..errors import ExitCode, hints_once
from ..findings import Finding, Severity, errors
from .output import Json, Texts, Trusted, counted, exit_codes, print_json


def check(
    folders: Annotated[
        list[Path], Argument(metavar="FOLDER...", help="Entries, or model repositories, whose entries are all checked.")
    ],
    backend: Annotated[Texts, Option(help="A backend that Triton has; may be repeated. Any without it.")] = None,
    gpus: Annotated[int | None, Option(min=0, help="GPUs of each of Triton's replicas. Any without it.")] = None,
    release: Annotated[str | None, Option(metavar="26.08", help="Triton's release, as its image has it.")] = None,
    trusted: Trusted = False,
    strict: Annotated[bool, Option("--strict", help="Warnings count as errors do.")] = False,
    json: Json = False,
) -> None:
    """Say what servers would refuse or silently ignore in an entry, before anything is copied.

    An entry is the folder of a Triton model (config.pbtxt and a version's folder), or of a language model (config.json,
    a tokenizer and *.safetensors). Nothing of the model is loaded or run. Exit code 1 where there are errors. With
    TIDEGATE_ENVIRONMENTS set, warnings say which servers there could not serve it.
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
    # With the folder in front, so that editors and terminals find the line.
    for text in hints_once(f"{entry / finding.where}: {finding.text}" for finding in findings):
        print(text)
    counts = Counter(each.severity for each in findings)
    totals = [counted(counts[each], each.value) for each in Severity if counts[each]]
    print(f"{entry}: {' and '.join(totals) or 'nothing found'}")
