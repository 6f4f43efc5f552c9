"""Configurations to try, made of the owner's, and the one that is written in the end."""

import dataclasses
import os
import re
import tempfile
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError
from ...findings import errors
from ..entries.checks import check_entry
from ..entries.entry import Entry
from ..entries.text import CONFIG, config_text, read_config
from .plan import Report

_COMMENT_OR_TEXT = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")


def require_sound(entry: Entry) -> None:
    """Raise UsageError about the first reason for which an entry cannot be measured on a Triton of its own.

    What `check` refuses Triton may hang over, of links only files are taken along, and an ensemble needs its steps.
    """
    if _config(entry).HasField("ensemble_scheduling"):
        raise UsageError(
            "an ensemble is not measured alone, and has no instances of its own",
            where=entry.where("ensemble_scheduling"),
            do="tune the models of its steps, one by one; or measure it with --url where it runs with them",
        )
    for finding in errors(check_entry(entry)):
        raise UsageError(finding.what, where=str(entry.folder / finding.where), why=finding.why, do=finding.do)
    for path in entry.folder.rglob("*"):
        if path.is_symlink():
            raise UsageError(
                "is a symbolic link", where=str(path), why="a model's entry holds files", do="put the file itself here"
            )


def variant(entry: Entry, instances: int | None, max_batch: int | None) -> ModelConfig:
    """Return the entry's configuration with so many instances in each group, and batches of so many rows.

    None leaves either as it is. Raises UsageError where the model's configuration has no room for it.
    """
    config = ModelConfig()
    config.CopyFrom(_config(entry))
    if instances is not None:
        if not config.instance_group:
            config.instance_group.add()
        for group in config.instance_group:
            group.count = instances
    if max_batch is not None:
        if config.max_batch_size < 1:
            raise UsageError(
                "the model takes no batches, so there is no max_batch_size to try",
                where=entry.where("max_batch_size"),
                why="its max_batch_size is 0, and the dimensions of its tensors are whole",
                do="leave --max-batch away; where the model does take batches, say so in its configuration first",
            )
        config.max_batch_size = max_batch
        if not config.HasField("sequence_batching"):
            config.dynamic_batching.SetInParent()
            fitting = [size for size in config.dynamic_batching.preferred_batch_size if size <= max_batch]
            config.dynamic_batching.preferred_batch_size[:] = fitting
    return config


def tuned_text(entry: Entry, report: Report) -> str:
    """Return the text of the best configuration, which says at its head what it was found by.

    Raises UsageError where nothing keeps to the limit, or where `check` would not accept the configuration.
    """
    best = report.best
    if best is None:
        raise UsageError(f"nothing that was tried keeps to the limit, so no {CONFIG} is written")
    config = variant(entry, best.setting.instances, best.setting.max_batch)
    heading = (
        f"# Found by `tidegate tune` with {best.setting}: {best.inferences_per_second:.1f} inferences/s, "
        f"p{report.percentile} {best.latency(report.percentile) * 1000:.1f} ms.\n"
    )
    text = heading + config_text(config)
    checked = dataclasses.replace(entry, text=read_config(text), problems=())
    for finding in errors(check_entry(checked)):
        raise UsageError(finding.what, where=finding.where, why=finding.why, do=finding.do)
    return text


def has_comments(entry: Entry) -> bool:
    """Tell whether the text of an entry's configuration has comments, which a new text does not have."""
    text = (entry.folder / CONFIG).read_text("utf-8", "replace") if entry.text is not None else ""
    return any(found[0].startswith("#") for found in _COMMENT_OR_TEXT.finditer(text))


def write_config(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a configuration, whole or not at all; raises UsageError where something is there that may not go."""
    check_target(path, overwrite=overwrite)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a configuration cannot be written: asked before an hour is spent on it."""
    if path.is_dir():
        raise UsageError("is a folder", where=str(path), do=f"name a file, such as {path / CONFIG}")
    if not path.parent.is_dir():
        raise UsageError("there is no such folder", where=str(path.parent))
    if path.exists() and not overwrite:
        raise UsageError("is there already", where=str(path), do="name another file, or say --overwrite")


def _config(entry: Entry) -> ModelConfig:
    if entry.text is None:
        raise UsageError(
            f"there is no {CONFIG}", where=str(entry.folder), do="make one with `tidegate model new`, and tune it then"
        )
    for problem in errors(entry.text.problems):
        raise UsageError(problem.what, where=problem.where, why=problem.why, do=problem.do)
    assert entry.config is not None  # what cannot be parsed has a problem
    return entry.config
