"""The command line. What a command needs is imported when it runs: `check` must not wait for Pulumi's SDK."""

from pathlib import Path
from typing import Annotated

import typer

from stacks.command import answering

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Brings the stacks of a definition out: as YAML, or up on a cluster.",
)

Definition = Annotated[Path, typer.Argument(metavar="DEFINITION", help="The stack definition.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the rendered YAML.")]
StackName = Annotated[str | None, typer.Option("--stack", metavar="NAME", help="Only this stack.")]

DEFAULT_OUT = Path("build/rendered")


def _known(engine: str | None) -> str | None:
    """Refuse the name of an engine that there is not, also where none is needed: it was meant for something."""
    if engine is not None:
        from .engines import require_known

        with answering():
            require_known(engine)
    return engine


EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", callback=_known, help="pulumi or helm; the first there is by default."),
]


@app.command()
def up(
    definition: Definition,
    out: Out = DEFAULT_OUT,
    stack: StackName = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CONTEXT", help="Bring stacks up there, with an engine.")
    ] = None,
    engine: EngineName = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over a stack that another engine brought up, or a namespace.")
    ] = False,
) -> None:
    """Render every stack to YAML; with --cluster bring the stacks of that kubeconfig context up there."""
    with answering() as outcome:
        if cluster is not None:
            from .cluster import Request, bring_up

            bring_up(Request(definition, cluster, stack, engine, adopt, out), outcome)
        else:
            from .up import render_all

            render_all(definition, out, stack, outcome)


@app.command()
def down(
    definition: Definition,
    cluster: Annotated[str, typer.Option("--cluster", metavar="CONTEXT", help="Where; `local` is the one here.")] = "",
    stack: StackName = None,
    engine: EngineName = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take stacks of production down too.")] = False,
) -> None:
    """Take the stacks of a kubeconfig context down; their datasets stay."""
    with answering() as outcome:
        from .cluster import Request, take_down

        take_down(Request(definition, cluster, stack, engine), outcome, sure=yes)


@app.command()
def check(definition: Definition) -> None:
    """Check the definition: its form, its rules, and the guardrails."""
    with answering():
        from .definition import check_definition

        check_definition(definition)


@app.command()
def environments(definition: Definition) -> None:
    """Print what clients are told of the environments: where to publish and call models, and who may (JSON)."""
    with answering():
        from .definition import tell_clients

        tell_clients(definition)


@app.command()
def preview(
    definition: Definition,
    out: Out = DEFAULT_OUT,
    stack: StackName = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REV", help="Compare with this git revision instead of DIR.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CONTEXT", help="Compare with what runs there instead of DIR.")
    ] = None,
    engine: Annotated[  # noqa: ARG001
        str | None,
        typer.Option("--engine", metavar="NAME", callback=_known, help="Makes no difference: previews need no engine."),
    ] = None,
    summary: Annotated[
        Path, typer.Option("--summary", metavar="FILE", help="Page for reviewers, of a comparison with REV or CONTEXT.")
    ] = Path("build/preview.md"),
) -> None:
    """Show what would change against the last rendering, a git revision or a cluster; change nothing there."""
    with answering():
        from .preview import Wanted, preview_changes

        preview_changes(Wanted(definition, out, stack, base, cluster, summary))


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where: a folder that is empty, or is not there yet.")],
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="PRODUCT", help="GPU of the nodes, as labelled.")] = None,
    values: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Values of the Domino blueprint's chart.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="ADDRESS", help="Where Tidegate is fetched from; else `origin`."),
    ] = None,
) -> None:
    """Write a repository for a platform of one's own, which pins this program."""
    with answering() as outcome:
        from .init.repository import InitRequest, write_repository

        outcome.text = "nothing was written"
        write_repository(InitRequest(folder, gpu, values, repository), outcome)


@app.command(hidden=True)
def render(definition: Definition, out: Out = DEFAULT_OUT) -> None:
    """Write what a definition renders to, without guardrails: what previews of later revisions compare with."""
    with answering():
        from .changes.revision import render_for_previews

        render_for_previews(definition, out)


@app.command()
def pin(
    definition: Definition,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Write what could be resolved, even when some images could not.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow registries that speak plain HTTP.")] = False,
    registry_plane: Annotated[
        str | None, typer.Option("--registry-plane", metavar="NAME", help="Ask through this data plane's mirrors.")
    ] = None,
) -> None:
    """Ask the registries for the digests of all images, and write images.lock beside the definition."""
    with answering() as outcome:
        from .definition import pin_images

        pin_images(definition, keep_going, insecure, registry_plane, outcome)


@app.command()
def rollout(
    definition: Definition,
    environment: Annotated[str, typer.Option("--environment", metavar="NAME", help="What is rolled out.")],
    start: Annotated[str | None, typer.Option("--from", metavar="PLANE", help="Begin with this data plane.")] = None,
    engine: EngineName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and what would change.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the rollout that was not finished.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Take the last rollout back.")] = False,
    journals: Annotated[Path, typer.Option("--journals", metavar="DIR", help="Folder of the journals.")] = Path(
        "build/rollout"
    ),
) -> None:
    """Bring an environment up in one data plane after another, in waves, each behind a health gate."""
    with answering() as outcome:
        from .waves.command import roll_out
        from .waves.prepare import RolloutRequest

        roll_out(RolloutRequest(definition, environment, start, engine, dry_run, resume, back, journals), outcome)
