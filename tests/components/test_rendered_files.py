"""The files of `tidegate render` pass kubeconform, strict; those of three environments are as they were reviewed."""

from pathlib import Path

import pytest

from rollout.render import render
from stacks.validate import read_definition
from tests import schemas

from .expected import CASES, FOLDER, rendered
from .test_environment import DEFINITIONS

RENDERED = [
    pytest.param(path, id=path.stem, marks=() if path.stem in ("inference", "everything") else pytest.mark.thorough)
    for path in DEFINITIONS
]


@pytest.mark.parametrize("path", RENDERED)
def test_every_rendered_file_passes_kubeconform_strict(path: Path, tmp_path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        for name, text in render(stack, definition).files.items():
            (tmp_path / f"{stack.name}-{name}").write_text(text)
    assert schemas.kubeconform(tmp_path) == (len(list(tmp_path.iterdir())), [])


@pytest.mark.parametrize("name", CASES)
def test_an_environment_is_rendered_as_it_was_reviewed(name: str) -> None:
    expected = (FOLDER / f"{name}.yaml").read_text()
    assert rendered(name) == expected, "if this is meant: python -m tests.components.expected, and read the difference"
