"""Model repositories on this machine: models in Triton's Python backend, written or published atomically."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CONFIG = "config.pbtxt"
Tensor = tuple[str, str, str]  # Name, data type and dimensions, as in config.pbtxt.


@dataclass(frozen=True)
class Model:
    """One model with its program and configuration. Without a program it is an ensemble."""

    name: str
    program: Path | None
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    more: str = ""
    batch: int = 0
    versions: Sequence[int] = (1,)
    parameters: Mapping[str, object] = field(default_factory=dict)

    def write(self, repository: Path) -> None:
        """Write it to a repository that no server reads yet."""
        folder = repository / self.name
        for version in self.versions:
            (folder / str(version)).mkdir(parents=True)
            if self.program is not None:
                shutil.copyfile(self.program, folder / str(version) / "model.py")
        (folder / CONFIG).write_text(self._config(), "utf-8")

    def _config(self) -> str:
        kind = 'platform: "ensemble"' if self.program is None else 'backend: "python"'
        parts = [f'name: "{self.name}"\n{kind}\nmax_batch_size: {self.batch}\n']
        for side, tensors in (("input", self.inputs), ("output", self.outputs)):
            for name, data_type, dims in tensors:
                parts.append(f'{side} {{ name: "{name}" data_type: {data_type} dims: [ {dims} ] }}\n')
        for key, value in self.parameters.items():
            parts.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')
        if self.program is not None:
            parts.append("instance_group { count: 1 kind: KIND_CPU }\n")
        return "".join([*parts, self.more])


def publish(model: Model, repository: Path, staging: Path) -> None:
    """Publish a model, or more versions of one. Readers see the old or the new state, never a partial one.

    It is staged outside the repository, on the same file system, and renamed into it, the configuration last. Existing
    versions are never changed.
    """
    staging.mkdir(parents=True, exist_ok=True)
    model.write(staging)
    staged, there = staging / model.name, repository / model.name
    if there.exists():
        for version in model.versions:
            if not (there / str(version)).exists():
                (staged / str(version)).rename(there / str(version))
        (staged / CONFIG).replace(there / CONFIG)
        shutil.rmtree(staged)
    else:
        staged.rename(there)
