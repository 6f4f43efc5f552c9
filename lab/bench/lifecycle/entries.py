"""Entries of a model repository of any size."""

import random
from collections.abc import Sequence
from pathlib import Path

CONFIG = """backend: "python"
max_batch_size: 0
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_CHUNK = 1 << 20


def make_entry(parent: Path, name: str, sizes: Sequence[int]) -> Path:
    """Make an entry with files of these sizes, which nothing can compress; return its folder."""
    folder = parent / name
    (folder / "1" / "weights").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG, "utf-8")
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    pass\n", "utf-8")
    numbers = random.Random(0)
    for number, size in enumerate(sizes):
        with (folder / "1" / "weights" / f"{number:05}.bin").open("wb") as file:
            left = size
            while left:
                left -= file.write(numbers.randbytes(min(left, _CHUNK)))
    return folder
