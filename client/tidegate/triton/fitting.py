"""Whether an entry fits a Triton: beside other models, beside other versions, with or without a GPU."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ..findings import Finding, error, warning
from ..repository import Repository
from .entries.checks import check_entry
from .entries.entry import read_entry
from .entries.text import CONFIG, parse_config
from .publishing.config import config_differences

NEEDS_GPU = ("tensorrt", "tensorrt_plan", "tensorrtllm", "dali")
HARMLESS = ("version_policy", "dynamic_batching", "instance_group", "model_warmup", "response_cache")
"""Fields in which versions may differ and still be served beside each other under the configuration of one of them."""


def check_staged(
    staged: Path, model: str, repository: Repository, backends: Collection[str] | None, gpu: bool | None
) -> list[Finding]:
    """Check an entry that was fetched, for servers with these backends, and beside the models of a repository."""
    entry = read_entry(staged, model)
    models, missing = None, set()
    if entry.config is not None and entry.config.ensemble_scheduling.step:
        models = {}
        steps, there = {step.model_name for step in entry.config.ensemble_scheduling.step}, set(repository.models())
        missing = steps - there
        for name in steps & there:
            if (text := repository.config(name)) is not None:
                models[name] = parse_config(text, f"{repository.where}/{name}/{CONFIG}")
    found = check_entry(entry, backends=backends, gpu=gpu, models=models)
    first = {f"there is no model '{name}'": f"deploy it first: tidegate deploy {name}" for name in missing}
    return [replace(each, do=first[each.what]) if each.what in first else each for each in found]


def needs_gpu(entry_config: str) -> str | None:
    """Return the backend, or the platform, of a configuration that runs on GPUs only."""
    config = parse_config(entry_config, CONFIG)
    return next((each for each in (config.backend, config.platform) if each in NEEDS_GPU), None)


def check_beside(old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
    """Check that two versions can be served beside each other: Triton has one configuration for both.

    Where they cannot, calls of the old version would be answered by the new one's rules while the new one comes.
    """
    different = [each for each in config_differences(old_config, new_config) if not each.startswith(HARMLESS)]
    return [
        warning(f"version {old} runs under version {new}'s {each}", CONFIG)
        if each.startswith("parameters")
        else error(
            f"versions {old} and {new} cannot be served beside each other: {each}",
            CONFIG,
            "Triton has one configuration for all versions of a model",
            "register it as a model of another name, which its callers then move to; or say --replace: the old version "
            "goes as the new one comes, and calls may fail for some seconds",
        )
        for each in different
    ]
