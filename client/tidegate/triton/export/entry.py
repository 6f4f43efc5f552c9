"""Creates an entry from a trained model, if the exported model gives the same answers as the original."""

import math
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy

from ...calling.tensors import Array, pack_json, values
from ...errors import TidegateError, UsageError
from ...names import RULE, is_name
from ...registry.golden import Golden
from ..entries.configure import Options
from ..entries.frameworks import onnx
from ..entries.write import check_free, new_entry, staging
from .model import OTHERWISE, Sample, ask_exported, ask_original, columns_of, convert, load, resized, sample_of

GOLDEN: Final = "golden.json"
GOLDEN_ROWS: Final = 32  # Of the sample. Every deployment sends the golden request.


@dataclass(frozen=True)
class Exported:
    """An entry, and the largest difference of each output from the original's. None for texts, which are equal."""

    folder: Path
    rows: int
    differences: Mapping[str, float | None]
    then: str  # the next command to run


@dataclass(frozen=True)
class Export:
    """A model, and the entry to create from it. The directory appears atomically, and nothing is overwritten."""

    source: str
    folder: Path
    name: str
    tolerance: float = 1e-4  # like that of golden requests
    max_batch_size: int = 64
    trusted: bool = False  # whether to load a pickle, which runs its code

    def run(self, given: Any = None) -> Exported:
        """Create it. `given` are the inputs to compare, by default MLflow's example. Raises TidegateError."""
        if not is_name(self.name):
            do = f"{RULE}. To choose another name, pass --name"
            raise UsageError(f"{self.name!r} is not a valid name of a model", do=do)
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance {self.tolerance} is not a number of at least 0")
        check_free(self.folder)
        new = [each for each in self.folder.parents if not each.exists()]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = staging(self.folder.parent, self.name)
        made = scratch / self.name
        try:
            done = self._compared(scratch, given)
            made.chmod(0o755)
            check_free(self.folder)
            made.rename(self.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            with suppress(OSError):  # they are not empty if they contain the entry
                for each in new:
                    each.rmdir()
        return done

    def _compared(self, scratch: Path, given: Any) -> Exported:
        source = load(Path(self.source), trusted=self.trusted)
        given = source.example if given is None else given
        if given is None:
            raise UsageError("there are no inputs to compare", where=self.source, do="pass some with --input FILE")
        sample = sample_of(given, self.source, columns_of(source))
        right = ask_original(source, sample, self.source)
        file = scratch / onnx.MODEL
        sample = convert(source, sample, file, self.source)
        found = ask_exported(file, sample, self.source)
        named = [each.name for each in onnx.read_tensors(file).outputs]
        if len(named) != len(right):
            what = f"the exported model has {len(named)} outputs, but the original {len(right)}"
            raise UsageError(what, where=self.source, do="export it yourself, then run `tidegate model new`")
        pairs = zip(right, found, strict=True)  # False becomes 0 if the exporter has numbers as classes
        right = [one.astype(other.dtype) if one.dtype == bool else one for one, other in pairs]
        if self.max_batch_size and any(each.shape[:1] != (sample.rows,) for each in (*right, *found)):
            what = "an output does not have one row per input row, so batches are impossible"
            raise UsageError(what, where=self.source, do="pass --max-batch-size 0")
        wanted, answered = (dict(zip(named, each, strict=True)) for each in (right, found))
        differences = self._differences(wanted, answered)
        for rows in (1, sample.rows + 1) if self.max_batch_size else ():
            batched = ask_exported(file, sample.resized(rows), self.source)
            others = {name: resized(array, rows) for name, array in wanted.items()}
            self._differences(others, dict(zip(named, batched, strict=True)), f" in a batch of {rows}")
        golden = self._golden(sample, wanted)
        batches = Options(max_batch_size=self.max_batch_size, dynamic_batching=self.max_batch_size > 1)
        new_entry(self.name, file, scratch, batches)
        (scratch / self.name / GOLDEN).write_bytes(golden.canonical())
        folder = shlex.quote(str(self.folder))
        then = f"tidegate register {folder} --golden {shlex.quote(str(self.folder / GOLDEN))}"
        return Exported(self.folder, sample.rows, differences, then)

    def _differences(
        self, right: Mapping[str, Array], found: Mapping[str, Array], when: str = ""
    ) -> dict[str, float | None]:
        """Return the largest difference of each output. Raises TidegateError if one exceeds the tolerance."""
        judge = Golden(request={}, outputs=_flat(right), tolerance=self.tolerance)
        off = judge.differences({"outputs": [{"name": name, "data": data} for name, data in _flat(found).items()]})
        most = {name: _largest(right[name], found[name]) for name in found}
        if off:
            why = "; ".join([*off, *(f"{name} differs by up to {each:.3g}" for name, each in most.items() if each)])
            do = f"if rounding explains it, pass --tolerance, which golden requests use too. Otherwise {OTHERWISE}"
            if when:
                do = f"{do}. If answers depend on other rows of the batch, pass --max-batch-size 0"
            what = f"the exported model answers differently than the original{when}"
            raise TidegateError(what, where=self.source, why=why, do=do)
        return most

    def _golden(self, sample: Sample, right: Mapping[str, Array]) -> Golden:
        """Return a golden request of rows that JSON can represent. Without batches, all rows are one request."""
        chosen: Any = slice(None)
        if self.max_batch_size:
            arrays = [each for each in (*sample.tensors.values(), *right.values()) if each.dtype.kind == "f"]
            finite = [numpy.isfinite(each.reshape(sample.rows, -1)).all(axis=1) for each in arrays]
            whole = numpy.flatnonzero(numpy.all([numpy.ones(sample.rows, bool), *finite], axis=0))
            chosen = whole[: min(GOLDEN_ROWS, self.max_batch_size)]
            if not len(chosen):
                why = "each row has a NaN or an infinity in its inputs or outputs, which JSON does not have"
                raise UsageError("no row can be a golden request", where=self.source, why=why, do="add a row without")
        request = pack_json({name: array[chosen] for name, array in sample.tensors.items()})
        outputs = {name: values(array[chosen], name) for name, array in right.items()}
        return Golden(request=request, outputs=outputs, tolerance=self.tolerance)


def _flat(arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    return {name: array.reshape(-1).tolist() for name, array in arrays.items()}


def _largest(right: Array, found: Array) -> float | None:
    if {right.dtype.kind, found.dtype.kind} & set("OSU") or right.size != found.size:
        return None
    return float(
        numpy.nanmax(numpy.abs(right.reshape(-1).astype(float) - found.reshape(-1).astype(float)), initial=0.0)
    )
