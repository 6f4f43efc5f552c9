import os
from pathlib import Path

import pytest
from tidegate_proxy.residency.client import LeaseToken


def put(folder: Path, number: int) -> None:
    """Replace the token as the kubelet does: a new directory, and a symbolic link that is renamed over the old one."""
    made = folder / f"..{number}"
    made.mkdir()
    (made / "token").write_text(f"token-{number}\n")
    (folder / "..new").symlink_to(made.name)
    (folder / "..new").rename(folder / "..data")
    if not (folder / "token").is_symlink():
        (folder / "token").symlink_to("..data/token")


def test_each_message_has_the_current_token_or_the_last_readable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = LeaseToken(tmp_path / "token")
    assert token.header() == b"", "an environment of before has none"
    for number in (1, 2, 3):
        put(tmp_path, number)
        assert token.header() == token.header() == b"authorization: Bearer token-%d\r\n" % number
    put(tmp_path, 4)

    def fails(_: Path) -> bytes:
        raise OSError(os.strerror(5))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fails)
        assert token.header() == b"authorization: Bearer token-3\r\n"
    assert token.header() == b"authorization: Bearer token-4\r\n"
    (tmp_path / "token").unlink()
    assert token.header() == b""
