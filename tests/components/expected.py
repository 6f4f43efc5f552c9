"""What comes out of four definitions, object by object, as files that a reviewer reads as a difference.

python -m tests.components.expected    writes them anew, after a change that is meant
"""

from pathlib import Path

from rollout.render import render
from stacks.validate import read_definition

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "expected"
CASES = {
    "dev-lab": (ROOT / "stacks/inference.yaml", "dev-lab"),
    "everything": (ROOT / "tests/definitions/everything.yaml", "prod-all"),
    "two-kinds": (ROOT / "tests/definitions/two-kinds.yaml", "prod-east"),
    "object-store": (ROOT / "tests/definitions/object-store.yaml", "prod-multi"),
}


def rendered(name: str) -> str:
    """Return the objects of a case as one YAML text, in the order of application."""
    path, stack_name = CASES[name]
    definition = read_definition(path)
    (stack,) = (stack for stack in definition.stacks if stack.name == stack_name)
    texts = render(stack, definition).files.values()
    return "".join(f"---\n{text.partition(chr(10))[2].partition(chr(10))[2]}" for text in texts)


if __name__ == "__main__":
    for case in CASES:
        (FOLDER / f"{case}.yaml").write_text(rendered(case))
