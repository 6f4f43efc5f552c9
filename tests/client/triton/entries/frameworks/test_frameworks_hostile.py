import re
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.configure import Options
from tidegate.triton.entries.detect import READERS, Framework, detect
from tidegate.triton.entries.frameworks import fil, openvino
from tidegate.triton.entries.frameworks.reading import Reading
from tidegate.triton.entries.write import new_entry

from tests.client.triton.entries.files import FILES
from tests.counts import examples

SINGLE = {
    Framework.TORCHSCRIPT: "script.pt",
    Framework.OPENVINO: "openvino.xml",
    Framework.XGBOOST_JSON: "xgboost_multi.json",
    Framework.XGBOOST_UBJSON: "xgboost_multi.ubj",
    Framework.LIGHTGBM: "lightgbm_multi.txt",
    Framework.TREELITE: "treelite_forest.tl",
    Framework.PYTHON: "double.py",
}
DAMAGE = st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=0, max_size=8)), min_size=1, max_size=6)


def traced(run: Callable[[], object]) -> tuple[object, int]:
    """Return the function's result, and its peak memory in bytes."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
def test_an_archive_that_grows_when_it_is_unpacked_takes_little_memory(tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(FILES / "script.pt") as whole,
        zipfile.ZipFile(tmp_path / "m.pt", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in whole.namelist():
            with archive.open(name, "w") as member:
                for _ in range(256 if name.endswith((".pkl", ".py")) else 0):
                    member.write(bytes(1 << 20))
    missing, peak = traced(lambda: READERS[Framework.TORCHSCRIPT](tmp_path / "m.pt").missing)
    assert "forward takes" not in str(missing)
    assert peak < 80 << 20


@pytest.mark.parametrize("framework", sorted(SINGLE))
@given(damage=DAMAGE, end=st.integers(0, 10_000))
@examples(150)
def test_damaged_files_are_read_or_refused(framework: Framework, damage: list[tuple[int, bytes]], end: int) -> None:
    content = bytearray((FILES / SINGLE[framework]).read_bytes())
    for at, noise in damage:
        content[at % len(content) : at % len(content) + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / SINGLE[framework]
        file.with_suffix(".bin").write_bytes(b"")
        file.write_bytes(content[:end] if end < 5000 else content)
        with suppress(UsageError):
            detect(file)
        with suppress(UsageError):
            READERS[framework](file)


@pytest.mark.thorough
@pytest.mark.parametrize("line", [b"x" * 1000, b"%d=\n"])
def test_lightgbm_without_a_tree_takes_little_memory(tmp_path: Path, line: bytes) -> None:
    with (tmp_path / "m.txt").open("wb") as file:
        file.write(b"tree\n")
        for number in range(20_000 if b"x" in line else 1_000_000):
            file.write(line % number if b"%" in line else line)

    def refused() -> None:
        with pytest.raises(UsageError, match="no tree in its first 1 MiB"):
            fil.read_lightgbm(tmp_path / "m.txt", 1 << 20)

    assert traced(refused)[1] < 4 << 20


def test_openvino_uses_no_memory_for_unneeded_parts(tmp_path: Path) -> None:
    junk = b"<!-- <!DOCTYPE net> --><rt_info>" + b"<a/>" * 500_000 + b"</rt_info></net>"
    (tmp_path / "m.xml").write_bytes((FILES / "openvino.xml").read_bytes().replace(b"</net>", junk))
    (tmp_path / "m.bin").write_bytes(b"")
    assert traced(lambda: openvino.read(tmp_path / "m.xml", 4 << 20))[1] < 8 << 20


def test_a_number_that_no_configuration_holds_is_refused(tmp_path: Path) -> None:
    xml = (FILES / "openvino.xml").read_text("utf-8")
    (tmp_path / "m.xml").write_text(re.sub(r"<dim>\d+</dim>", f"<dim>{2**63}</dim>", xml), "utf-8")
    (tmp_path / "m.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="too large"):
        new_entry("m", tmp_path / "m.xml", tmp_path / "entries", Options())


def test_ubjson_uses_no_memory_for_unneeded_parts() -> None:
    long, doubles = b"Sl" + (2 << 20).to_bytes(4) + bytes(2 << 20), b"[$D#l" + (2 << 20).to_bytes(4) + bytes(16 << 20)
    many = b"{" + b"".join(b"U\x06%06dZ" % number for number in range(40_000)) + b"}"
    for junk in (many, b"[" + b"[]" * 40_000 + b"]", b"[#l" + (40_000).to_bytes(4) + b"Z" * 40_000, long, doubles):
        content = b"{U\x01a" + junk + b"U\x01bT}"
        found, peak = traced(partial(fil.read_ubjson, content, {"a": None, "b": None}))
        assert (found, peak < 2 << 20) == ({"a": None if junk is long else {}, "b": True}, True)


def test_a_huge_program_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("class TritonPythonModel: pass\n" + "a,a,a,a\n" * (1 << 18))
    with pytest.raises(UsageError, match="more than 1 MiB"):
        READERS[Framework.PYTHON](tmp_path / "model.py")
    with zipfile.ZipFile(FILES / "script.pt") as whole, zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        for name in whole.namelist():
            content = whole.read(name)
            archive.writestr(name, content + b"\na,a,a,a\n" * (1 << 18) if name.endswith(".py") else content)
    reading, peak = traced(lambda: READERS[Framework.TORCHSCRIPT](tmp_path / "m.pt"))
    assert isinstance(reading, Reading)
    assert reading.arguments is None
    assert peak < 32 << 20
