"""Files that are damaged, or made to do harm: a reader tells what it can, or says in words that it cannot."""

import tempfile
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate.entries.detect import READERS, Framework, detect
from tidegate.errors import UsageError

from tests.client.entries.files import FILES

SINGLE = {
    Framework.GRAPH_DEF: "graph_shapes.pb",
    Framework.TORCHSCRIPT: "script.pt",
    Framework.OPENVINO: "openvino.xml",
    Framework.XGBOOST_JSON: "xgboost_multi.json",
    Framework.XGBOOST_UBJSON: "xgboost_multi.ubj",
    Framework.LIGHTGBM: "lightgbm_multi.txt",
    Framework.TREELITE: "treelite_forest.tl",
    Framework.PYTHON: "double.py",
    Framework.DALI: "model.dali",
}
DAMAGE = st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=0, max_size=8)), min_size=1, max_size=6)


def test_an_archive_that_grows_when_it_is_unpacked_takes_little_memory(tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(FILES / "script.pt") as whole,
        zipfile.ZipFile(tmp_path / "m.pt", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in whole.namelist():
            with archive.open(name, "w") as member:
                for _ in range(256 if name.endswith((".pkl", ".py")) else 0):
                    member.write(bytes(1 << 20))
    tracemalloc.start()
    assert "forward takes" not in READERS[Framework.TORCHSCRIPT](tmp_path / "m.pt").missing
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80 << 20


@pytest.mark.parametrize("framework", sorted(SINGLE))
@given(damage=DAMAGE, end=st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
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
