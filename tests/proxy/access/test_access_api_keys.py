import re
from pathlib import Path

import pytest
from tidegate_proxy.access.api_keys import hash_line, new_key, read_api_keys
from tidegate_proxy.problems import ProblemType, TableError

from .tables import access, gate, problem_of, rule

pytestmark = pytest.mark.anyio
ANYBODY = rule(principals=("*",))
KEY = new_key()


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_key_is_of_a_form_that_scanners_find_and_differs_each_time() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"tgk_[0-9A-Za-z]{49}", key) for key in keys)


async def test_a_key_names_the_principal_whose_file_has_its_hash(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    folder = written(tmp_path, batch=f"# since May\n{hash_line(old)}\n\n{hash_line(new)} # June\n", other="")
    authorizer = gate(access(ANYBODY), keys=read_api_keys(folder))
    for key in (old, new):
        for credential in (f"x-api-key {key}", f"Bearer {key}", f"bearer  {key}"):
            grant = await authorizer.ask(credential.encode(), None, "a", "infer")
            assert grant.identity.principal.name == "batch"
            assert grant.identity.principal.source == "api-keys"
            assert grant.identity.expires == float("inf")
            assert authorizer.known(credential.encode(), (None, "a", "infer", None)) is grant


async def test_unknown_keys_are_refused_without_repeating_them(tmp_path: Path) -> None:
    authorizer = gate(access(ANYBODY), keys=read_api_keys(written(tmp_path, batch=hash_line(new_key()))))
    stranger = new_key()
    for key in (stranger, stranger[:-1], "x"):
        problem = await problem_of(authorizer, f"x-api-key {key}".encode())
        assert problem.type is ProblemType.UNAUTHENTICATED
        assert "Unknown API key" in problem.detail
        assert stranger[:12] not in problem.detail


def test_the_directory_of_a_kubernetes_secret_is_read(tmp_path: Path) -> None:
    """Its files are links into a directory that is a link itself, and both change with the Secret."""
    key = new_key()
    real = tmp_path / "..2026_05_01_10_00_00.1"
    real.mkdir()
    written(real, batch=hash_line(key))
    (tmp_path / "..data").symlink_to(real.name)
    (tmp_path / "batch").symlink_to("..data/batch")
    (tmp_path / ".hidden").write_text("not a hash")
    assert set(read_api_keys(tmp_path).values()) == {"batch"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("no-hash", "line 1: not a hash"),
        ("# fine\n\nsha256:abc", "line 3: not a hash"),
        ("sha256:" + "A" * 64, "not a hash"),
        ("\x00\xff", "not a hash"),
        ("x" * 70_000, "bytes"),
        pytest.param(KEY, "no longer secret", id="a key"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TableError) as caught:
        read_api_keys(written(tmp_path, batch=text))
    assert what in str(caught.value)
    assert str(tmp_path / "batch") in str(caught.value)
    assert KEY[:12] not in str(caught.value)


def test_a_key_of_two_principals_is_refused(tmp_path: Path) -> None:
    line = hash_line(new_key())
    with pytest.raises(TableError, match="a key of batch too"):
        read_api_keys(written(tmp_path, batch=line, other=line))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="No such file"):
        read_api_keys(tmp_path / "none")
