"""Images are pinned by digests that a registry gave for these very images."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.problems import DefinitionError, Position, Problem
from stacks.validate import read_definition
from tests.stacks.definition.examples import BASE, IMAGES, digest, dumped, edited_at, lock_tree


def said(folder: Path, lock: object, definition: str = BASE) -> list[Problem]:
    """What is said about a definition and the lock file beside it."""
    (folder / "inference.yaml").write_text(definition)
    if lock is not None:
        (folder / "images.lock").write_text(dumped(lock))
    try:
        return list(read_definition(folder / "inference.yaml").advisories)
    except DefinitionError as error:
        return error.problems


def line_of(problem: Problem) -> str:
    assert isinstance(problem.where, Position)
    return Path(problem.where.file).read_text().splitlines()[problem.where.line - 1].strip()


def test_a_lock_that_pins_every_image_and_nothing_else_is_good(tmp_path: Path) -> None:
    assert said(tmp_path, lock_tree()) == []


def test_a_digest_of_another_image_is_said_at_its_line_in_the_lock(tmp_path: Path) -> None:
    lock = lock_tree()
    lock["images"].append({"image": "nvcr.io/nvidia/tritonserver:26.07-py3", "digest": digest(9)})
    (problem,) = said(tmp_path, lock)
    assert problem.file == str(tmp_path / "images.lock")
    assert line_of(problem) == "- image: nvcr.io/nvidia/tritonserver:26.07-py3"
    assert f'Did you mean "{IMAGES[0]}"?' in problem.do
    assert "make pin" in problem.do


def test_an_image_that_stands_twice_in_the_lock_is_refused(tmp_path: Path) -> None:
    lock = lock_tree()
    lock["images"].append({"image": IMAGES[1], "digest": digest(9)})
    (problem,) = said(tmp_path, lock)
    assert problem.what == f"{IMAGES[1]} stands twice"
    assert line_of(problem) == f"- image: {IMAGES[1]}"


@pytest.mark.parametrize("lock", [None, {"images": []}])
def test_images_without_a_digest_are_an_advisory_each(tmp_path: Path, lock: object) -> None:
    problems = said(tmp_path, lock)
    assert [problem.what for problem in problems] == [f"image {image} has no digest" for image in IMAGES]
    assert {problem.severity for problem in problems} == {"advisory"}
    assert [line_of(problem) for problem in problems] == ["- name: triton", "- name: proxy", "- name: eviction-policy"]


def test_an_image_that_an_overlay_changes_needs_a_digest_of_its_own(tmp_path: Path) -> None:
    text = edited_at({"environments/prod/images": [{"name": "triton", "tag": "26.09-py3"}]})
    (problem,) = said(tmp_path, lock_tree(), text)
    assert problem.what == "image nvcr.io/nvidia/tritonserver:26.09-py3 has no digest"
