"""Commands about a definition and its clusters. Each imports its modules late: `check` loads no Pulumi SDK."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from rollout.seen import CommandReport
from stacks.command import WRONG_INPUT, CommandError, EngineName, ExitStatus, exit_codes
from stacks.problems import DefinitionError

from . import options
from .options import DEFINITION, AsJson, Definition, Stack

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the YAML.")]
Cluster = Annotated[
    str, typer.Option(metavar="CONTEXT", help="The kubeconfig context.", autocompletion=options.contexts)
]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Continue even if prerequisites are missing.")]

DEFAULT_OUT = Path("build/rendered")


EngineOption = Annotated[EngineName | None, typer.Option("--engine", help="Default: Pulumi if installed, else Helm.")]


@contextmanager
def reporting(command: str, file: Path, *, as_json: bool) -> Iterator[tuple[ExitStatus, CommandReport]]:
    """Collect what a command finds. With `as_json`, standard output is one document, even if the command fails."""
    seen = CommandReport(command, str(file))
    stdout, ended = sys.stdout, None
    outcome = ExitStatus()
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), exit_codes(outcome):
            try:
                yield outcome, seen
            except DefinitionError as error:
                seen.problems = error.problems
                raise
    except typer.Exit as exit_:
        ended = exit_
    if as_json:
        from rollout.json_document import document_text  # not at the top: other runs do not need it

        print(document_text(seen, ended.exit_code if ended else 0, outcome.failure), file=stdout)
    if ended:
        raise ended


def render(
    definition: Definition = DEFINITION,
    out: Out = DEFAULT_OUT,
    stack: Stack = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", hidden=True)] = False,
) -> None:
    """Write every stack as YAML, for any tool. Needs no cluster and no engine."""
    with exit_codes() as outcome:
        if unchecked:  # used by previews of later revisions
            from rollout.changes.revision import render_for_previews

            render_for_previews(definition, out)
        else:
            from rollout.rendering import render_all

            render_all(definition, out, stack, outcome)


def up(
    definition: Definition = DEFINITION,
    cluster: Cluster = "",
    stack: Stack = None,
    engine: EngineOption = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over a stack of another engine, or a namespace that is in use.")
    ] = False,
    keep_going: KeepGoing = False,
) -> None:
    """Apply the stacks of a kubeconfig context to its cluster, with Pulumi or Helm."""
    with exit_codes() as outcome:
        from rollout.cluster import Request, bring_up

        bring_up(Request(definition, cluster, stack, engine, adopt, keep_going), outcome)


def down(
    definition: Definition = DEFINITION,
    cluster: Cluster = "",
    stack: Stack = None,
    engine: EngineOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also remove production stacks.")] = False,
) -> None:
    """Remove the stacks of a kubeconfig context from its cluster. Their datasets stay."""
    with exit_codes() as outcome:
        from rollout.cluster import Request, take_down

        take_down(Request(definition, cluster, stack, engine), outcome, sure=yes)


def check(definition: Definition = DEFINITION, as_json: AsJson = False) -> None:
    """Check the definition: its syntax, its rules and the guardrails. Changes nothing."""
    with reporting("check", definition, as_json=as_json) as (_, seen):
        from rollout.definition import check_definition

        check_definition(definition, seen)


def guardrails(
    file: Annotated[str, typer.Argument(help="YAML file of Kubernetes objects. - is standard input.")] = "-",
) -> None:
    """Check Kubernetes objects in a file, or on standard input, against the guardrails."""
    with exit_codes():
        from rollout.manifests import check_manifests

        check_manifests(file)


def preflight(
    definition: Definition = DEFINITION, cluster: Cluster = "", stack: Stack = None, as_json: AsJson = False
) -> None:
    """List what the stacks of a kubeconfig context need but the cluster lacks. Changes nothing."""
    with reporting("preflight", definition, as_json=as_json) as (_, seen):
        from rollout.preflight import print_missing

        print_missing(definition, cluster, stack, seen)


def environments(definition: Definition = DEFINITION) -> None:
    """Print the JSON file for clients (TIDEGATE_ENVIRONMENTS): where to publish and call models, and who may."""
    with exit_codes():
        from stacks.clients import environments_text
        from stacks.validate import read_definition

        print(environments_text(read_definition(definition)), end="")


def schema() -> None:
    """Print the JSON schema of the definition, for editors."""
    with exit_codes():
        from stacks.reference import schema_text

        print(schema_text(), end="")


def dashboards(
    folder: Annotated[Path, typer.Argument(help="Directory for the files.")] = Path("build/dashboards"),
) -> None:
    """Write the Grafana dashboards as JSON files, to import."""
    with exit_codes():
        from components.dashboards import DASHBOARDS

        folder.mkdir(parents=True, exist_ok=True)
        for each in DASHBOARDS:
            file = folder / f"tidegate-{each.name}.json"
            file.write_text(each.written() + "\n", encoding="utf-8")
            print(f"{file}: {each.description}")


def preview(
    definition: Definition = DEFINITION,
    stack: Stack = None,
    base: Annotated[str | None, typer.Option("--base", metavar="REV", help="Compare with this git revision.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="CONTEXT", help="Compare with this cluster.", autocompletion=options.contexts)
    ] = None,
    summary: Annotated[Path, typer.Option("--summary", metavar="FILE", help="Markdown page for reviewers.")] = Path(
        "build/preview.md"
    ),
    as_json: AsJson = False,
) -> None:
    """Show what would change, compared with a git revision or a cluster. Changes nothing."""
    with reporting("preview", definition, as_json=as_json) as (_, seen):
        from rollout.preview import preview_changes

        preview_changes(definition, stack, base, cluster, summary, seen)


def init(
    folder: Annotated[Path, typer.Argument(help="An empty or new directory.")],
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="PRODUCT", help="GPU product label of the nodes.")] = None,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="ADDRESS", help="Git address of Tidegate. Default: `origin`.")
    ] = None,
) -> None:
    """Write a repository for your platform that uses this version."""
    with exit_codes() as outcome:
        from rollout.init.repository import write_repository

        outcome.text = "nothing was written"
        write_repository(folder, outcome, gpu, repository)


def pin(
    definition: Definition = DEFINITION,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow registries over plain HTTP.")] = False,
    registry_plane: Annotated[
        str | None, typer.Option("--registry-plane", metavar="NAME", help="Use the mirrors of this data plane.")
    ] = None,
) -> None:
    """Look up the digest of every image, and write images.lock next to the definition."""
    with exit_codes() as outcome:
        from rollout.definition import pin_images

        pin_images(definition, insecure, registry_plane, outcome)


def rollout(
    environment: Annotated[
        str, typer.Option(metavar="NAME", help="The environment to roll out.", autocompletion=options.environments)
    ],
    definition: Definition = DEFINITION,
    engine: EngineOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and the changes only.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the unfinished rollout.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Roll the last rollout back.")] = False,
    journals: Annotated[Path, typer.Option("--journals", metavar="DIR", help="Directory of the journals.")] = Path(
        "build/rollout"
    ),
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Apply an environment to one data plane after another, in waves, with a health gate after each."""
    with reporting("rollout", definition, as_json=as_json) as (outcome, seen):
        from rollout.waves.command import roll_out
        from rollout.waves.prepare import RolloutRequest

        if as_json and not dry_run:
            raise CommandError("--json works only with --dry-run: add --dry-run.", WRONG_INPUT)
        wanted = RolloutRequest(definition, environment, engine, dry_run, resume, back, journals, keep_going)
        roll_out(wanted, outcome, seen)
