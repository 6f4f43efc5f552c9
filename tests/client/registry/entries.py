import random
from pathlib import Path

from tidegate.registry import RegisteredVersion, Registry

CONFIG = 'backend: "python"\nmax_batch_size: 0\n'


def program(number: int = 1) -> bytes:
    """Return a model's program. Programs of all numbers below ten have the same length."""
    return f"class TritonPythonModel:\n    x = {number}\n".encode()


def entry(folder: Path, name: str, files: dict[str, bytes] | None = None) -> Path:
    root = folder / name
    message = {"config.pbtxt": f'name: "{name}"\n{CONFIG}'.encode(), "1/model.py": program()} | (files or {})
    for path, content in message.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def registered(registry: Registry, root: Path) -> RegisteredVersion:
    return registry.register(root, registered_by="anna")
