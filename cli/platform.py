"""Commands about a definition and its clusters. What a command needs is imported when it runs: `check` must not wait
for Pulumi's SDK."""

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

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the rendered YAML.")]
Cluster = Annotated[
    str,
    typer.Option(metavar="CONTEXT", help="Kubeconfig context.", autocompletion=options.contexts),
]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Go on whatever the clusters lack.")]

DEFAULT_OUT = Path("build/rendered")


EngineOption = Annotated[EngineName | None, typer.Option("--engine", help="The first that is there by default.")]


@contextmanager
def reporting(command: str, file: Path, *, as_json: bool) -> Iterator[tuple[ExitStatus, CommandReport]]:
    """Let a command note what it finds; with `as_json` that is all of standard output, however the command ends."""
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
        from rollout.json_document import document_text  # not before: other runs do without

        print(document_text(seen, ended.exit_code if ended else 0, outcome.failure), file=stdout)
    if ended:
        raise ended


def render(
    definition: Definition = DEFINITION,
    out: Out = DEFAULT_OUT,
    stack: Stack = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", hidden=True)] = False,
) -> None:
    """Write every stack as YAML, to apply by any means; needs no cluster and no engine."""
    with exit_codes() as outcome:
        if unchecked:  # what previews of later revisions compare with
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
        bool, typer.Option("--adopt", help="Take over a stack that another engine brought up, or a namespace.")
    ] = False,
    keep_going: KeepGoing = False,
) -> None:
    """Bring the stacks of a kubeconfig context up there, with Pulumi or Helm."""
    with exit_codes() as outcome:
        from rollout.cluster import Request, bring_up

        bring_up(Request(definition, cluster, stack, engine, adopt, keep_going), outcome)


def down(
    definition: Definition = DEFINITION,
    cluster: Cluster = "",
    stack: Stack = None,
    engine: EngineOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take stacks of production down too.")] = False,
) -> None:
    """Take the stacks of a kubeconfig context down; their datasets stay."""
    with exit_codes() as outcome:
        from rollout.cluster import Request, take_down

        take_down(Request(definition, cluster, stack, engine), outcome, sure=yes)


def check(definition: Definition = DEFINITION, as_json: AsJson = False) -> None:
    """Check the definition: its form, its rules, and the guardrails."""
    with reporting("check", definition, as_json=as_json) as (_, seen):
        from rollout.definition import check_definition

        check_definition(definition, seen)


def guardrails(
    file: Annotated[str, typer.Argument(help="YAML of Kubernetes objects; - is standard input.")] = "-",
) -> None:
    """Hold the Kubernetes objects in a file, or on standard input, to the guardrails."""
    with exit_codes():
        from rollout.manifests import check_manifests

        check_manifests(file)


def preflight(
    definition: Definition = DEFINITION,
    cluster: Cluster = "",
    stack: Stack = None,
    as_json: AsJson = False,
) -> None:
    """List what the stacks of a kubeconfig context need and the cluster lacks; change nothing."""
    with reporting("preflight", definition, as_json=as_json) as (_, seen):
        from rollout.preflight import print_missing

        print_missing(definition, cluster, stack, seen)


def environments(definition: Definition = DEFINITION) -> None:
    """Print where clients publish and call models, and who may, as JSON for TIDEGATE_ENVIRONMENTS."""
    with exit_codes():
        from stacks.clients import environments_text
        from stacks.validate import read_definition

        print(environments_text(read_definition(definition)), end="")


def schema() -> None:
    """Print the JSON schema of definitions, for editors: tidegate schema > stacks/definition.schema.json."""
    with exit_codes():
        from stacks.reference import schema_text

        print(schema_text(), end="")


def dashboards(
    folder: Annotated[Path, typer.Argument(help="Folder of the files.")] = Path("build/dashboards"),
) -> None:
    """Write Grafana's dashboards as JSON files, to be imported into any Grafana."""
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
        str | None,
        typer.Option(metavar="CONTEXT", help="Compare with what runs there.", autocompletion=options.contexts),
    ] = None,
    summary: Annotated[Path, typer.Option("--summary", metavar="FILE", help="Page for reviewers.")] = Path(
        "build/preview.md"
    ),
    as_json: AsJson = False,
) -> None:
    """Show what would change against a git revision or a cluster; change nothing there."""
    with reporting("preview", definition, as_json=as_json) as (_, seen):
        from rollout.preview import preview_changes

        preview_changes(definition, stack, base, cluster, summary, seen)


def init(
    folder: Annotated[Path, typer.Argument(help="Where: a folder that is empty, or is not there yet.")],
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="PRODUCT", help="GPU of the nodes, as labelled.")] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="ADDRESS", help="Where Tidegate is fetched from; else `origin`."),
    ] = None,
) -> None:
    """Write a repository for your platform, which pins this version of Tidegate."""
    with exit_codes() as outcome:
        from rollout.init.repository import write_repository

        outcome.text = "nothing was written"
        write_repository(folder, outcome, gpu, repository)


def pin(
    definition: Definition = DEFINITION,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow registries that speak plain HTTP.")] = False,
    registry_plane: Annotated[
        str | None, typer.Option("--registry-plane", metavar="NAME", help="Ask through this data plane's mirrors.")
    ] = None,
) -> None:
    """Ask the registries for the digests of all images, and write images.lock beside the definition."""
    with exit_codes() as outcome:
        from rollout.definition import pin_images

        pin_images(definition, insecure, registry_plane, outcome)


def rollout(
    environment: Annotated[
        str, typer.Option(metavar="NAME", help="The environment to bring up.", autocompletion=options.environments)
    ],
    definition: Definition = DEFINITION,
    engine: EngineOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and what would change.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the rollout that was not finished.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Take the last rollout back.")] = False,
    journals: Annotated[Path, typer.Option("--journals", metavar="DIR", help="Folder of the journals.")] = Path(
        "build/rollout"
    ),
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Bring an environment up in one data plane after another, in waves, each behind a health gate."""
    with reporting("rollout", definition, as_json=as_json) as (outcome, seen):
        from rollout.waves.command import roll_out
        from rollout.waves.prepare import RolloutRequest

        if as_json and not dry_run:
            raise CommandError("--json prints the plan of a rollout: add --dry-run.", WRONG_INPUT)
        wanted = RolloutRequest(definition, environment, engine, dry_run, resume, back, journals, keep_going)
        roll_out(wanted, outcome, seen)
