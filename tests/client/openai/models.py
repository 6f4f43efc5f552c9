"""Small language models in the hub's format. Every word that they draw has the same text."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.local_plane.dynamo import write_model

INDEX = "model.safetensors.index.json"
LAYERS = ("model.layers.0.mlp.weight", "model.layers.1.mlp.weight")


def write_safetensors(file: Path, shapes: Mapping[str, tuple[int, int]]) -> None:
    """Write tensors of zeros (BF16) with these shapes."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def change(file: Path, **more: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | more), "utf-8")


def write_entry(folder: Path, word: str, *, sharded: bool = False) -> Path:
    """Write an entry, all of whose words are this one. The model's name is the directory's."""
    write_model(folder)
    change(folder / "tokenizer.json", decoder={"type": "Replace", "pattern": {"Regex": r"word\d+"}, "content": word})
    words = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    embedding = {"model.embed_tokens.weight": (words, 64)}
    layers = dict.fromkeys(LAYERS, (4, 64))
    if not sharded:
        write_safetensors(folder / "model.safetensors", embedding | layers)
        return folder
    files = {"model-00001-of-00002.safetensors": embedding, "model-00002-of-00002.safetensors": layers}
    for name, shapes in files.items():
        write_safetensors(folder / name, shapes)
    placed = {tensor: name for name, shapes in files.items() for tensor in shapes}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": placed}), "utf-8")
    return folder
