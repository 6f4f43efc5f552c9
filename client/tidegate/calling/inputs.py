"""Converts tables, arrays, dicts and lists to a model's tensors. Does not import pandas."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Final

import numpy

from ..errors import UsageError
from ..names import nearest
from .tensors import Array, dtype_of

_DIGITS: Final = {"FP16": 11, "BF16": 8, "FP32": 24, "FP64": 53}  # bits of the whole numbers that a type holds exactly


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or an output."""

    name: str
    data_type: str  # of the protocol, such as `FP32` or `BYTES`
    dims: tuple[int, ...]  # without the batch dimension. -1 is any size.
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.data_type}[{', '.join('any' if dim < 0 else str(dim) for dim in self.dims)}]"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this shape is one such tensor."""
        sizes = zip(self.dims, shape, strict=False)
        return len(shape) == len(self.dims) and all(dim in (-1, size) for dim, size in sizes)


@dataclass(frozen=True, slots=True)
class Signature:
    """A model's inputs and outputs, and its maximum batch size."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int  # rows per request. 0: the model takes no batches.
    decoupled: bool  # whether a request may have any number of responses
    sequential: bool = False  # whether requests are steps of sequences, with one row each

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        return tuple(each for each in self.inputs if not each.optional)

    def __str__(self) -> str:
        inputs = ", ".join(f"{each}{' (optional)' if each.optional else ''}" for each in self.inputs)
        batch = f", up to {self.max_batch} rows per request" if self.max_batch and not self.sequential else ""
        return f"{inputs}{batch}"


def signature_of(config: Mapping[str, Any]) -> Signature:
    """Parse a configuration (`ModelConfig` of Triton's model_config.proto, as JSON)."""
    inputs, outputs = (tuple(_tensor(each) for each in config.get(side, ())) for side in ("input", "output"))
    decoupled = bool((config.get("model_transaction_policy") or {}).get("decoupled", False))
    return Signature(inputs, outputs, int(config.get("max_batch_size", 0)), decoupled, "sequence_batching" in config)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a call."""

    inputs: dict[str, Array]  # If `rows` is set, it is the size of their first dimension.
    rows: int | None = None  # Rows of a batch, or else requests of a model without batches. None: one request.
    batched: bool = False  # Whether the rows form batches.


def is_frame(given: object) -> bool:
    """Return whether a value is a pandas DataFrame."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def take(given: Any, signature: Signature) -> Inputs:
    """Convert a value to tensors of the signature. Rows of a table, and dicts in a list, are rows of a batch. Raises
    UsageError."""
    by_rows, columns = _columns(given, signature)
    known = {each.name: each for each in signature.inputs}
    for name in columns:
        if name not in known:
            raise UsageError(f"the model has no input {name!r}", do=nearest(name, known, f"its inputs are {signature}"))
    if lacking := [each.name for each in signature.required if each.name not in columns]:
        raise UsageError(f"the input {', '.join(lacking)} is missing", do=f"the model takes {signature}")
    arrays = {name: cast(value, known[name]) for name, value in columns.items()}
    return _batch(arrays, known, by_rows) if signature.max_batch else _plain(arrays, known)


def requests(given: Inputs, signature: Signature) -> Iterator[dict[str, Array]]:
    """Yield the inputs of each request: batches up to the model's limit, or single rows."""
    if given.rows is None:
        yield given.inputs
        return
    step = signature.max_batch if given.batched and not signature.sequential else 1
    if given.batched and given.rows <= step:
        yield given.inputs
        return
    for begin in range(0, given.rows, step):
        which = slice(begin, begin + step) if given.batched else begin
        yield {name: numpy.asarray(array[which]) for name, array in given.inputs.items()}


def cast(value: Any, tensor: TensorSpec) -> Array:
    """Convert a value to the tensor's type. Raises UsageError if a number would change."""
    if tensor.data_type == "BYTES":
        return _texts(value, tensor)
    dtype = dtype_of(tensor.data_type)
    found = _array(value, tensor.name)
    if found.dtype == dtype:
        return found
    if found.dtype.kind not in "biuf" and found.dtype.name != "bfloat16":
        numbers = [isinstance(each, Number | numpy.generic) for each in found.flat]
        why = f"which {tensor.data_type} cannot hold" if all(numbers) else "which is not a number"
        raise _refused(found, numbers, tensor, why)
    if dtype.kind in "biu":
        lowest, highest = (0, 1) if dtype.kind == "b" else (numpy.iinfo(dtype).min, numpy.iinfo(dtype).max)
        whole: Any = found.dtype.kind != "f" or (numpy.isfinite(found) & (found == numpy.trunc(found)))
        # The highest 64-bit number is not a float, but the next whole number is.
        fits = whole & (found >= lowest) & (found < highest + 1.0 if found.dtype.kind == "f" else found <= highest)
        made = found.astype(dtype) if fits.all() else found
    else:
        with numpy.errstate(over="ignore"):
            made = found.astype(dtype)
        if found.dtype.kind in "iu":
            _exact(found, made, tensor)
        fits = ~(numpy.isinf(made) & numpy.isfinite(found))
    if not fits.all():
        raise _refused(found, fits.flat, tensor, f"which {tensor.data_type} cannot hold")
    return made


def _refused(found: Array, fits: Iterable[Any], tensor: TensorSpec, why: str) -> UsageError:
    """Return the error for the first element that does not fit, with its value, its row, and the expected tensor."""
    if not found.size:
        return UsageError(f"input {tensor.name} contains no numbers", do=f"it must be {tensor}")
    index = next((at for at, fit in enumerate(fits) if not fit), 0)
    value = numpy.ravel(found)[index]
    place = [int(each) for each in numpy.unravel_index(index, found.shape)]
    where = f" in row {place[0]} (counted from 0)" if place else ""
    scalar = value.item() if isinstance(value, numpy.generic) else value
    missing = " (a missing value)" if type(scalar).__name__ == "NAType" else ""
    do = f"fill in the value, or remove the row. The input is {tensor}" if missing else f"the input is {tensor}"
    return UsageError(f"input {tensor.name} contains {reprlib.repr(scalar)}{missing}{where}, {why}", do=do)


def _exact(found: Array, made: Array, tensor: TensorSpec) -> None:
    """Raise UsageError if a whole number has changed. Numbers with fractions are always rounded."""
    surely = 1 << _DIGITS[tensor.data_type]
    large = (found < -surely) | (found > surely)
    for before, after in zip(found[large], made[large], strict=True):
        if not numpy.isfinite(after) or int(after) != int(before):
            what = f"input {tensor.name} has the whole number {before}, which {tensor.data_type} cannot hold exactly"
            raise UsageError(what, do=f"pass it as a float if it may be rounded. The input is {tensor}")


def _tensor(described: Mapping[str, Any]) -> TensorSpec:
    kind = str(described["data_type"]).removeprefix("TYPE_")
    dims = tuple(int(dim) for dim in described.get("dims", ()))
    return TensorSpec(
        str(described["name"]), "BYTES" if kind == "STRING" else kind, dims, bool(described.get("optional", False))
    )


def _columns(given: Any, signature: Signature) -> tuple[bool, dict[str, Any]]:
    """Return the inputs by name, and whether their first dimension is rows."""
    if is_frame(given):
        return True, _table(given, signature)
    if isinstance(given, Mapping):
        return False, {str(name): value for name, value in given.items()}
    if isinstance(given, Sequence) and given and all(isinstance(each, Mapping) for each in given):
        names = list(given[0])
        if any(set(each) != set(names) for each in given):
            raise UsageError("the rows have different inputs")
        return True, {str(name): [each[name] for each in given] for name in names}
    if len(signature.required) != 1:
        raise UsageError("the model has several inputs, so you must name them", do=f"it takes {signature}")
    is_series = hasattr(given, "iloc")
    return is_series, {signature.required[0].name: _cells(given) if is_series else given}


def _table(frame: Any, signature: Signature) -> dict[str, Any]:
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise UsageError("the table has two columns of the same name")
    if len(signature.required) == 1:
        only = signature.required[0]
        if not {each.name for each in signature.inputs} & set(names):
            if only.dims and only.dims[-1] not in (-1, len(names)):
                do = f"name the columns after the inputs, or pass {only.dims[-1]} columns: the model takes {signature}"
                raise UsageError(f"no column of the table is an input: {', '.join(names[:5])}", do=do)
            return {only.name: frame.to_numpy()}
    return {name: _cells(frame.iloc[:, place]) for place, name in enumerate(names)}


def _cells(series: Any) -> Any:
    """Return a column as an array. Cells that are arrays or lists become further dimensions."""
    cells = series.to_numpy()
    if cells.dtype == object and len(cells) and isinstance(cells[0], list | tuple | numpy.ndarray):
        try:
            return numpy.stack([numpy.asarray(cell) for cell in cells])
        except ValueError:
            raise UsageError(f"the cells of the column {series.name} differ in shape") from None
    return cells


def _array(value: Any, name: str) -> Array:
    try:
        found = numpy.asarray(value)
        if found.dtype == object and not any(isinstance(each, str | bytes) for each in found.flat):
            found = numpy.asarray(found.tolist())
    except (ValueError, TypeError):
        why = "its elements differ in shape or type"
        raise UsageError(f"input {name} is not an array", why=why) from None
    return found


def _texts(value: Any, tensor: TensorSpec) -> Array:
    try:
        found = numpy.array(value, object)
    except ValueError:
        raise UsageError(f"input {tensor.name} is not an array", why="its elements differ in shape") from None
    for place, each in numpy.ndenumerate(found):
        if not isinstance(each, str | bytes):
            raise _refused(found, [index < place for index in numpy.ndindex(found.shape)], tensor, "which is not text")
        found[place] = each.encode() if isinstance(each, str) else each
    return found


def _batch(arrays: dict[str, Array], known: Mapping[str, TensorSpec], by_rows: bool) -> Inputs:
    """Return arrays with the batch dimension first. An array with the shape of one row becomes a batch of one."""
    found = {}
    for name, array in arrays.items():
        is_one = not by_rows and known[name].fits(array.shape)
        found[name] = array[None] if is_one else _rows(array, known[name], "rows of ")
    return Inputs(found, _count_rows(found), batched=True)


def _plain(arrays: dict[str, Array], known: Mapping[str, TensorSpec]) -> Inputs:
    """Return arrays for a model without batches. If all have a further dimension, each row is a separate request."""
    scalars = {name for name, array in arrays.items() if not array.ndim and known[name].fits((1,))}
    single = {name: array.reshape(1) if name in scalars else array for name, array in arrays.items()}
    if all(known[name].fits(array.shape) for name, array in single.items()):
        return Inputs(single)
    found = {name: _rows(array, known[name], "") for name, array in arrays.items()}
    return Inputs(found, _count_rows(found))


def _rows(array: Array, tensor: TensorSpec, of: str) -> Array:
    """Return an array as rows of a tensor. Raises UsageError if its shape does not fit."""
    if array.ndim and tensor.fits(array.shape[1:]):
        return array
    if array.ndim <= 1 and tensor.fits((1,)):
        return array.reshape(-1, 1)
    raise UsageError(f"input {tensor.name} has the shape {list(array.shape)}", do=f"the model takes {of}{tensor}")


def _count_rows(arrays: Mapping[str, Array]) -> int | None:
    sizes = {array.shape[0] for array in arrays.values()}
    if len(sizes) > 1:
        counts = ", ".join(f"{name} {array.shape[0]}" for name, array in arrays.items())
        raise UsageError("the inputs have different numbers of rows", why=counts)
    return sizes.pop() if sizes else None
