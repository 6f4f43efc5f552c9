"""The files that `make up` writes pass kubeconform and kubernetes-validate, both strict, custom resources included."""

from pathlib import Path

import pytest
import yaml

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
    written = 0
    for stack in definition.stacks:
        folder = tmp_path / stack.name
        folder.mkdir()
        for name, text in render(stack, definition.lock, path.name).files.items():
            (folder / name).write_text(text)
            written += 1
    report = schemas.kubeconform(tmp_path)
    assert report.ok, report.violations
    assert not report.skipped
    assert report.checked == written


@pytest.mark.parametrize("path", RENDERED)
def test_every_rendered_file_passes_kubernetes_validate_strict(path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        for text in render(stack, definition.lock, path.name).files.values():
            item = yaml.safe_load(text)
            try:
                assert schemas.kubernetes_validate_strict(item) == []
            except schemas.NoSchemaError:
                assert schemas.crd_violations(item) == []
