"""The files that `make up` writes pass kubeconform, strict, custom resources included."""

from pathlib import Path

import pytest

from rollout.render import render
from stacks.validate import read_definition
from tests import schemas

from .test_environment import DEFINITIONS

RENDERED = [
    pytest.param(path, id=path.stem, marks=() if path.stem in ("inference", "everything") else pytest.mark.thorough)
    for path in DEFINITIONS
]


@pytest.mark.parametrize("path", RENDERED)
def test_every_rendered_file_passes_kubeconform_strict(path: Path, tmp_path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        for name, text in render(stack, definition.lock, path.name).files.items():
            (tmp_path / f"{stack.name}-{name}").write_text(text)
    assert schemas.kubeconform(tmp_path) == (len(list(tmp_path.iterdir())), [])
