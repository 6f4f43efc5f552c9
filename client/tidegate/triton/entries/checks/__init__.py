"""Finds what Triton would refuse, hang on or silently ignore in an entry.

The rules follow `model_config_utils.cc`, `model_lifecycle.cc` and `ensemble_utils.cc` of triton-inference-server/core.
tests/client/triton/entries compares them with a real Triton.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tidegate_contracts.manifest import is_inside
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ....findings import Finding, in_order
from ..entry import MAX_CONFIG_BYTES, Entry, is_version, read_entry
from ..text import CONFIG, read_config
from . import backends as backend_checks
from . import contents, ensembles, layout, paths, rules, running, tensors
from .ensembles import Neighbour

_OF_THE_CONFIG = (
    backend_checks.check, contents.check, ensembles.check, layout.check_policy, paths.check, paths.check_agents,
    rules.check_program, rules.check, running.check, tensors.check, tensors.check_batch, tensors.check_state,
    tensors.check_warm_up,
)  # fmt: skip


def check_entry(
    folder: Path | Entry,
    *,
    backends: Collection[str] | None = None,
    gpus: int | None = None,
    release: str | None = None,
    models: Mapping[str, ModelConfig] | None = None,
) -> list[Finding]:
    """Return the findings about an entry: errors first, then by file and line.

    `backends`, `gpus` (a count) and `release` (26.08) describe the server. None means unknown. `models` are the others
    of its repository. If it is None, the directories next to the entry are read, and a missing step of an ensemble is
    only a warning. Raises UsageError if there is no directory.
    """
    entry = folder if isinstance(folder, Entry) else read_entry(folder)
    findings = [*entry.problems, *layout.check(entry)]
    if (config := entry.config) is not None:
        found = [each for check in _OF_THE_CONFIG for each in check(entry, config)]
        found += backend_checks.check_server(entry, config, backends)
        found += running.check_instances(entry, config, gpus)
        found += running.check_release(entry, config, release)
        find = _beside(entry) if models is None else {name: Neighbour(models[name]) for name in models}.get
        found += ensembles.check_steps(entry, config, find, complete=models is not None)
        # Places are fields of the configuration, or files, whose paths start with a version's number.
        for each in found:
            findings.append(each if each.where[:1].isdigit() else replace(each, where=entry.where(each.where)))
    return in_order(findings)


def _beside(entry: Entry) -> Callable[[str], Neighbour | None]:
    root = entry.folder.absolute().parent

    @cache
    def find(name: str) -> Neighbour | None:
        file = root / name / CONFIG
        if not is_inside(name) or not file.is_file() or file.stat().st_size > MAX_CONFIG_BYTES:
            return None
        config = read_config(file.read_text("utf-8", "replace")).config
        versions = frozenset(int(at.name) for at in (root / name).iterdir() if is_version(at.name))
        return None if config is None else Neighbour(config, versions)

    return find
