from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.images_lock import FILE_NAME, ImagesLock, PinnedImage, lock_text, read_images_lock
from stacks.load import frozen, parse
from stacks.problems import DefinitionError, Position, Problem
from stacks.validate import read_definition
from tests.stacks.definition.examples import BASE, digest


def refused(folder: Path, text: str) -> list[Problem]:
    (folder / FILE_NAME).write_text(text)
    with pytest.raises(DefinitionError) as caught:
        read_images_lock(folder)
    for problem in caught.value.problems:
        assert problem.file == str(folder / FILE_NAME)
    return caught.value.problems


def test_a_digest_is_found_by_repository_and_tag_and_without_a_file_nothing_is_pinned(tmp_path: Path) -> None:
    assert read_images_lock(tmp_path) == ImagesLock()
    (tmp_path / FILE_NAME).write_text(f"images:\n- image: a:1\n  digest: {digest(1)}\n")
    lock = read_images_lock(tmp_path)
    assert (lock.digest("a:1"), lock.digest("a:2")) == (digest(1), None)


@given(st.lists(st.tuples(st.from_regex(r"[a-z0-9./]{1,20}:[A-Za-z0-9_.-]{1,20}", fullmatch=True), st.integers(0, 99))))
def test_a_written_lock_can_be_read_and_is_sorted(pins: list[tuple[str, int]]) -> None:
    images = [PinnedImage.model_validate({"image": image, "digest": digest(number)}) for image, number in pins]
    text = lock_text(images)
    assert text.startswith("# ")
    read = ImagesLock.model_validate(frozen(parse(text, FILE_NAME).tree))
    assert sorted(read.images, key=lambda pin: (pin.image, pin.digest)) == sorted(
        images, key=lambda pin: (pin.image, pin.digest)
    )
    assert [pin.image for pin in read.images] == sorted(image for image, _ in pins)
    assert lock_text(read.images) == text


@pytest.mark.parametrize(
    ("text", "lines", "what"),
    [
        ("images:\n- image: a:1\n  digest: sha256:abc\n", [3], "does not have the right form"),
        (f"images:\n- image: ''\n  digest: {digest(1)}\n", [2], "must have at least 1 character"),
        (f"images:\n- image: a:1\n  digset: {digest(1)}\n", [3], 'unknown key "digset"'),
        ("images:\n- image: a:1\n  digest: x\n- digest: y\n- image: c:1\n  digest: z\n", [3, 4, 4, 6], "form"),
        ("# nothing\n", [], "empty"),
    ],
)
def test_mistakes_of_a_lock_are_reported_with_their_lines(
    tmp_path: Path, text: str, lines: list[int], what: str
) -> None:
    found = refused(tmp_path, text)
    assert what in found[0].what
    assert "inference.yaml" not in found[0].do
    assert [problem.where.line for problem in found if isinstance(problem.where, Position)] == lines


def test_mistakes_of_a_definition_and_its_lock_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "inference.yaml").write_text(BASE.replace("26.08-py3", "26.08"))
    (tmp_path / FILE_NAME).write_text("images: 1\n")
    with pytest.raises(DefinitionError) as caught:
        read_definition(tmp_path / "inference.yaml")
    assert {Path(problem.file).name for problem in caught.value.problems} == {"inference.yaml", FILE_NAME}
