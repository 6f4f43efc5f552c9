"""Commands for Helm. Each command imports its modules when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from stacks.command import WRONG_INPUT, CommandError, exit_codes
from stacks.problems import counted

from .options import DEFINITION, Definition, stacks


def chart(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the chart.")] = Path("charts/tidegate"),
) -> None:
    """Write the Helm chart, which is generated from the components."""
    with exit_codes():
        from charts import CHART
        from charts.folder import require_chart, write

        require_chart(out)
        files = (path for path in CHART.rglob("*") if path.is_file())
        wanted = {path.relative_to(CHART).as_posix(): path.read_text("utf-8") for path in files}
        changed = write(wanted, out)
        for path in changed:
            print(f"{out / path}: {'written' if path in wanted else 'removed'}")
        print(f"{counted(wanted, 'file')}, {len(changed) or 'nothing'} changed.")


def values(
    definition: Definition = DEFINITION,
    stack: Annotated[str, typer.Option(metavar="NAME", help="The stack.", autocompletion=stacks)] = "",
) -> None:
    """Print the values of one stack for the Helm chart."""
    with exit_codes():
        from charts import values_of
        from charts.values_file import values_text
        from stacks.command import chosen_stacks
        from stacks.problems import escaped, listed
        from stacks.resolve import resolve
        from stacks.validate import read_definition

        read = read_definition(definition)
        if not stack:
            names = listed(each.name for each in read.stacks)
            raise CommandError(f"Add a stack, such as --stack {read.stacks[0].name}. There are: {names}.", WRONG_INPUT)
        (one,) = chosen_stacks(read, stack)
        heading = (
            f"Values of the Tidegate chart: stack {one.name} of {escaped(read.file)}, by `tidegate values`.\n"
            f"helm upgrade --install {one.name} charts/tidegate --namespace {one.namespace} \\\n"
            "  --create-namespace --take-ownership -f <this file>"
        )
        print(values_text(values_of(resolve(one, read.lock)), heading), end="")
