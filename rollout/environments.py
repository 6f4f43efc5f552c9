"""`environments`: what clients are told of a definition, for admins to hand out."""

import os
import tempfile
from pathlib import Path

from stacks.clients import environments_text
from stacks.problems import escaped
from stacks.validate import read_definition

from .errors import Outcome


def tell_clients(path: Path, out: Path | None, outcome: Outcome) -> None:
    """Print what clients are told of a definition, or write it to a file, which readers see whole or not at all."""
    definition = read_definition(path)
    text = environments_text(definition)
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
    ) as new:
        try:
            new.write(text)
            new.close()
            os.chmod(new.name, 0o644)  # it is for everybody, and holds no secret
            os.replace(new.name, out)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
    outcome.text = f"{escaped(str(out))} is written"
    names = ", ".join(environment.name for environment in definition.header.environments)
    print(f"{escaped(str(out))}: written, for {names}; clients read it where TIDEGATE_ENVIRONMENTS names it")
