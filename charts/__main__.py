"""`python -m charts`: what the Makefile calls. What a command needs is imported when it runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from stacks.command import FAILED, WRONG_INPUT, CommandError, answering

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Makes the Helm chart from the components, and the values of stacks for it.",
)


@app.command()
def generate(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 and name what is stale.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the chart; its own by default.")
    ] = None,
) -> None:
    """Write the chart's folder, and say what changed."""
    with answering():
        from . import CHART
        from .folder import contents, require_chart, stale, write

        chart = out or CHART
        require_chart(chart)
        wanted = contents()
        changed = (stale if check else write)(wanted, chart)
        if check:
            for path in changed:
                print(f"{chart.name}/{path} is stale: run `make chart`", file=sys.stderr)
            if changed:
                raise typer.Exit(FAILED)
            return
        for path in changed:
            print(f"{chart.name}/{path}: {'written' if path in wanted else 'removed'}")
        print(f"{len(wanted)} files, {len(changed) or 'nothing'} changed.")


@app.command()
def values(
    definition: Annotated[Path, typer.Argument(metavar="DEFINITION", help="The stack definition.")],
    stack: Annotated[str, typer.Option("--stack", metavar="NAME", help="The stack whose values are printed.")] = "",
) -> None:
    """Print the chart's values of one stack."""
    with answering():
        from stacks.command import chosen
        from stacks.problems import escaped, listed
        from stacks.resolve import resolve
        from stacks.validate import read_definition

        from . import values_of
        from .values_file import values_text

        read = read_definition(definition)
        if not stack:
            names = listed(each.name for each in read.stacks)
            raise CommandError(f"Say which stack, as in STACK={read.stacks[0].name}. There are: {names}.", WRONG_INPUT)
        (one,) = chosen(read, stack)
        heading = (
            f"Values of the Tidegate chart: stack {one.name} of {escaped(read.file)}, by `make values`.\n"
            f"helm upgrade --install {one.name} charts/tidegate --namespace {one.namespace} \\\n"
            "  --create-namespace --take-ownership -f <this file>"
        )
        print(values_text(values_of(resolve(one, read.lock)), heading), end="")


@app.command()
def package(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the package.")] = Path("build/charts"),
) -> None:
    """Package the chart for an OCI registry, byte for byte the same each time."""
    with answering():
        import hashlib

        from . import CHART
        from .packaging import package as write_package

        path = write_package(CHART, out)
        print(f"{path}  sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    app(prog_name="python -m charts")


if __name__ == "__main__":
    main()
