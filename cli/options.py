"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

DEFINITION = Path("stacks/inference.yaml")
Definition = Annotated[Path, typer.Argument(help="The stack definition.")]
Stack = Annotated[str | None, typer.Option(metavar="NAME", help="Only this stack.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and all else on standard error.")]
