"""The command line. What a command needs is imported when it runs: `check` must not wait for Pulumi's SDK."""

from pathlib import Path
from typing import Annotated

import typer

from .errors import answering

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


@app.command()
def up(
    definition: Definition,
    out: Out = DEFAULT_OUT,
    stack: StackName = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="CONTEXT", help="Bring stacks up there, with an engine.")
    ] = None,
) -> None:
    """Render every stack to YAML; with --cluster bring the stacks of that kubeconfig context up there."""
    with answering() as outcome:
        if cluster is not None:
            from .cluster import bring_up

            bring_up(definition, cluster, stack, out, outcome)
        else:
            from .up import render_all

            render_all(definition, out, stack, outcome)


@app.command()
def check(definition: Definition) -> None:
    """Check the definition, and nothing else."""
    with answering():
        from .check import check_definition

        check_definition(definition)


@app.command()
def preview(
    definition: Definition,
    out: Out = DEFAULT_OUT,
    stack: StackName = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REV", help="Compare with this git revision instead of DIR.")
    ] = None,
) -> None:
    """Show what would change against the last rendering or a git revision; write nothing."""
    with answering():
        from .preview import preview_changes

        preview_changes(definition, out, stack, base)


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
        from .pin import pin_images

        pin_images(definition, keep_going, insecure, registry_plane, outcome)
