"""`retry`: a command in the policy's container has the running policy take a model out of quarantine, by a file."""

from pathlib import Path

FILE = "retry"
"""Below the state folder, which only the policy's container has: a model a line, until the policy has taken them."""


def ask(state: Path, model: str) -> None:
    """Name a model to the policy with this state folder; raises OSError."""
    with open(state / FILE, "a", encoding="utf-8") as file:
        file.write(f"{' '.join(model.split())}\n")


def taken(state: Path) -> list[str]:
    """Return the models that were named since the last time; blocks, raises OSError."""
    file = state / FILE
    if not file.exists():
        return []
    mine = file.rename(state / f"{FILE}.taken")
    return mine.read_text("utf-8", "replace").splitlines()
