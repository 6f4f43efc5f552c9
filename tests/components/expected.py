"""Rendered stacks as reviewed: an object of each kind as YAML to read, and a digest of every object of five stacks.

python -m tests.components.expected               writes them, after an intended change
python -m tests.components.expected --diff main   prints all differences from what a revision renders
"""

import re
import sys
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from rollout.changes.revision import rendering_of
from rollout.render import render
from stacks.validate import read_definition

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "expected"
READABLE = "trial-node"
CASES = {
    "dev-lab": ROOT / "stacks/inference.yaml",
    "prod-all": ROOT / "tests/definitions/everything.yaml",
    "prod-east": ROOT / "tests/definitions/two-kinds.yaml",
    "prod-multi": ROOT / "tests/definitions/object-store.yaml",
    READABLE: ROOT / "tests/definitions/real-node.yaml",
}
"""Stacks by name, with their definitions."""


@cache
def files(stack_name: str) -> dict[str, str]:
    """Return the texts of a stack's rendered objects by file name, in the order of application."""
    definition = read_definition(CASES[stack_name])
    (stack,) = (stack for stack in definition.stacks if stack.name == stack_name)
    return {name: _without_heading(text) for name, text in render(stack, definition).files.items()}


def objects(stack_name: str) -> list[dict[str, Any]]:
    return [yaml.load(text, yaml.CSafeLoader) for text in files(stack_name).values()]


def readable() -> str:
    """Return the first object of each kind of one small stack as a single YAML text."""
    first = {re.findall(r"^kind: (\w+)$", text, re.MULTILINE)[0]: text for text in reversed(files(READABLE).values())}
    return "".join(f"---\n{text}" for text in reversed(first.values()))


def digests() -> str:
    """Return one line an object: stack, file name, and a hash of the text."""
    return "".join(
        f"{stack} {name} {sha256(text.encode()).hexdigest()[:16]}\n"
        for stack in CASES
        for name, text in files(stack).items()
    )


def differences(revision: str) -> Iterator[str]:
    """Yield the lines of a unified diff from the objects that a git revision renders with its code."""
    for stack, path in CASES.items():
        with rendering_of(revision, path) as (_, folder):
            before = {file.name: _without_heading(file.read_text()) for file in (folder / stack).iterdir()}
        for name in sorted(before.keys() | files(stack).keys()):
            old, new = (side.get(name, "").splitlines(keepends=True) for side in (before, files(stack)))
            yield from unified_diff(old, new, f"{revision}/{stack}/{name}", f"{stack}/{name}")


def _without_heading(text: str) -> str:
    return text.split("\n", 2)[2]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--diff"]:
        sys.stdout.writelines(differences(sys.argv[2]))
    else:
        (FOLDER / f"{READABLE}.yaml").write_text(readable())
        (FOLDER / "digests.txt").write_text(digests())
