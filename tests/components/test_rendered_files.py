from pathlib import Path

from rollout.render import render
from stacks.validate import read_definition
from tests import schemas

from .expected import CASES, FOLDER, READABLE, digests, readable

IF_MEANT = "if this is meant: python -m tests.components.expected (--diff main shows it in full)"


def test_every_rendered_file_passes_kubeconform_strict(tmp_path: Path) -> None:
    definition = read_definition(CASES["prod-all"])
    for stack in definition.stacks:
        for name, text in render(stack, definition).files.items():
            (tmp_path / f"{stack.name}-{name}").write_text(text)
    assert schemas.kubeconform(tmp_path) == (len(list(tmp_path.iterdir())), [])


def test_an_object_of_each_kind_is_rendered_as_it_was_reviewed() -> None:
    assert readable() == (FOLDER / f"{READABLE}.yaml").read_text(), IF_MEANT


def test_every_object_of_five_stacks_has_the_digest_that_was_reviewed() -> None:
    assert digests().splitlines() == (FOLDER / "digests.txt").read_text().splitlines(), IF_MEANT
