"""What a model takes and gives, as its configuration says it."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or an output."""

    name: str
    data_type: str
    """Of the protocol: `FP32`, `BYTES`."""
    dims: tuple[int, ...]
    """Without the batch's dimension; -1 is any number."""
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.data_type}[{', '.join('any' if dim < 0 else str(dim) for dim in self.dims)}]"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Tell whether an array of this shape is one such tensor."""
        return len(shape) == len(self.dims) and all(
            dim in (-1, size) for dim, size in zip(self.dims, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """Of one model."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch: int
    """Rows that one request may have; 0: the model takes no batches."""
    decoupled: bool
    """Whether a request may have any number of answers."""
    sequential: bool = False
    """Whether requests are steps of sequences: then each has one row, whatever the batch."""

    @property
    def required(self) -> tuple[Tensor, ...]:
        """Inputs that every request has."""
        return tuple(each for each in self.inputs if not each.optional)

    def __str__(self) -> str:
        inputs = ", ".join(f"{each}{' (optional)' if each.optional else ''}" for each in self.inputs)
        batch = f"; up to {self.max_batch} rows at once" if self.max_batch and not self.sequential else ""
        return f"{inputs}{batch}"


def signature_of(config: Mapping[str, Any]) -> Signature:
    """Return the signature that a configuration has (`ModelConfig` of Triton's model_config.proto, as JSON)."""
    policy = config.get("model_transaction_policy") or {}
    return Signature(
        _tensors(config.get("input", ())),
        _tensors(config.get("output", ())),
        int(config.get("max_batch_size", 0)),
        bool(policy.get("decoupled", False)),
        "sequence_batching" in config,
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the name that is meant, as a hint, or nothing."""
    found = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {found[0]}?" if found else ""


def _tensors(said: Iterable[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            str(each["name"]),
            {"STRING": "BYTES"}.get(kind := str(each["data_type"]).removeprefix("TYPE_"), kind),
            tuple(int(dim) for dim in each.get("dims", ())),
            bool(each.get("optional", False)),
        )
        for each in said
    )
