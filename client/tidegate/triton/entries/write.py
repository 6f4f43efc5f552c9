"""Makes the entry of a model: its files laid out as Triton wants them, and its config.pbtxt."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from tidegate_contracts.manifest import ENTRY_VERSION
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError, hints_once
from ...findings import Finding, errors
from ...names import RULE, is_name
from . import ensemble
from .checks import check_entry
from .configure import complete, first_dimension_varies
from .detect import READERS, Framework, detect
from .entry import read_entry
from .frameworks.llm import place_engine
from .frameworks.reading import Reading, in_range
from .text import CONFIG, config_text

_MAY_BATCH = "all tensors have a variable first dimension: where it is the batch, --max-batch-size N lets Triton batch"
_KEPT = "Triton wants this folder; an ensemble has no files in it.\n"


@dataclass(frozen=True)
class NewEntry:
    """An entry that was made."""

    folder: Path
    framework: Framework
    config: Any
    notes: tuple[str, ...]
    warnings: tuple[Finding, ...]


def new_entry(
    name: str,
    sources: Sequence[Path],
    parent: Path,
    *,
    framework: Framework | None = None,
    settings: Any = None,
    labels: Mapping[str, Path] | None = None,
    links: Mapping[str, str] | None = None,
) -> NewEntry:
    """Make the entry `name` in the folder `parent`, of one model's file or folder, or of several entries: an ensemble.

    `settings` is a ModelConfig with what was chosen (see `complete`), `labels` give an output the file with its
    classes' names, `links` are an ensemble's (see `chain`). The entry appears whole, and nothing is overwritten. Raises
    UsageError, also for what Triton would refuse.
    """
    if not is_name(name):
        raise UsageError(f"{name!r} is no name for a model", do=RULE)
    if not sources:
        raise UsageError("there is no model to make an entry of", do="give its file or folder")
    folder = parent / name
    check_free(folder)
    settings = ModelConfig() if settings is None else settings
    framework, reading = _read(sources, framework, links)
    with in_range(str(sources[0])):
        config = complete(reading, name, settings)
    if framework is Framework.TENSORRT_LLM:
        place_engine(config)
    _label(config, labels or {})
    parent.mkdir(parents=True, exist_ok=True)
    staged = staging(parent, name)
    try:
        _lay(staged, config, reading, framework, labels or {})
        steps = _beside(sources) if framework is Framework.ENSEMBLE else None
        findings = check_entry(read_entry(staged, name), models=steps)
        if refused := errors(findings):
            what = "Triton would refuse this entry"
            raise UsageError(what, where=name, why="\n" + indent("\n".join(hints_once(map(str, refused))), "    "))
        staged.chmod(0o755)  # of mkdtemp's 0700, with which no server could read it
        try:
            staged.rename(folder)
        except OSError:
            check_free(folder)  # somebody else may have made one meanwhile
            raise
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    notes = list(reading.notes)
    if not config.max_batch_size and first_dimension_varies(reading):
        notes.append(_MAY_BATCH)
    return NewEntry(folder, framework, config, tuple(notes), tuple(findings))


def _read(
    sources: Sequence[Path], framework: Framework | None, links: Mapping[str, str] | None
) -> tuple[Framework, Reading]:
    several = len(sources) > 1 or framework is Framework.ENSEMBLE
    if several and framework in (None, Framework.ENSEMBLE):
        return Framework.ENSEMBLE, ensemble.chain(sources, links)
    if several or links:
        raise UsageError("only an ensemble is made of several entries", do="give one file or folder")
    (source,) = sources
    if framework is None or not source.exists():
        framework, source = detect(source)
    elif source.is_dir():  # which may hold one file of the framework
        with suppress(UsageError):
            found, file = detect(source)
            source = file if found is framework else source
    return framework, READERS[framework](source)


def _beside(sources: Sequence[Path]) -> dict[str, Any]:
    entries = [read_entry(source) for source in sources]
    return {entry.name: entry.config for entry in entries if entry.config is not None}


def _label(config: Any, labels: Mapping[str, Path]) -> None:
    outputs = {each.name: each for each in config.output}
    names: dict[str, Path] = {CONFIG: Path(), ENTRY_VERSION: Path()}
    for output, file in labels.items():
        if output not in outputs:
            known = ", ".join(outputs)
            raise UsageError(f"the model has no output {output!r} to label", do=f"its outputs are {known}")
        if not file.is_file():
            raise UsageError("there is no such file with labels", where=file)
        if names.setdefault(file.name, file) != file:
            raise UsageError("another file of the entry has this name", where=file, do="give it another name")
        outputs[output].label_filename = file.name


def staging(parent: Path, name: str) -> Path:
    """Return a new folder on the same file system: outside of `parent` where that can be, for Triton may be polling it,
    and takes every folder there for a model.
    """
    above = parent.resolve().parent
    if os.access(above, os.W_OK) and above.stat().st_dev == parent.stat().st_dev:
        parent = above
    return Path(tempfile.mkdtemp(prefix=f".tidegate-new-{name}.", dir=parent))


def _lay(staged: Path, config: Any, reading: Reading, framework: Framework, labels: Mapping[str, Path]) -> None:
    version = staged / ENTRY_VERSION
    version.mkdir()
    for below, source in reading.files:
        target = version / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        if os.access(source, os.X_OK):
            target.chmod(0o755)
    if framework is Framework.ENSEMBLE:
        (version / ensemble.KEEP).write_text(_KEPT, "utf-8")
    for file in labels.values():
        shutil.copyfile(file, staged / file.name)
    (staged / CONFIG).write_text(config_text(config), "utf-8")


def check_free(folder: Path) -> None:
    """Raise UsageError where something is in the place of an entry already."""
    if os.path.lexists(folder):
        do = "take it away first, or name another folder"
        raise UsageError("it is there already, and is not overwritten", where=folder, do=do)
