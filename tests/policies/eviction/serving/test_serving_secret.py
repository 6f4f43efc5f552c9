"""The control secret: made once for each pod, whole or not there, and for nobody else's eyes."""

import os
from pathlib import Path

import pytest
from tidegate_eviction.serving.files import control_secret


def test_it_is_made_once_and_kept_when_the_policy_restarts(tmp_path: Path) -> None:
    first = control_secret(tmp_path / "secret")
    assert len(first) == 64
    assert (tmp_path / "secret").read_text() == first
    assert control_secret(tmp_path / "secret") == first
    assert control_secret(tmp_path / "another") != first
    assert os.listdir(tmp_path) == ["secret", "another"] or os.listdir(tmp_path) == ["another", "secret"]


def test_others_cannot_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        control_secret(tmp_path / "open")
        os.umask(0o777)
        control_secret(tmp_path / "closed")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "closed")] == [0o640, 0o640]


@pytest.mark.parametrize("broken", [b"", b"abc", b"\xff" * 64, b"5" * 64 + b"\n"])
def test_what_a_killed_predecessor_left_is_replaced(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "secret").write_bytes(broken)
    (tmp_path / ".secret.new").write_bytes(b"half")
    assert control_secret(tmp_path / "secret") == (tmp_path / "secret").read_text()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        control_secret(tmp_path / "missing" / "secret")
