"""Whether an entry fits where it is to go: asked before anything is written there."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tidegate_contracts.eviction import DISK_FACTOR
from tidegate_contracts.manifest import ENTRY_VERSION, Manifest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ..errors import UsageError
from ..findings import Finding, error, errors, warning
from ..repository import Repository
from ..triton.entries.checks import check_entry
from ..triton.entries.entry import read_entry
from ..triton.entries.text import CONFIG, parse_config
from ..triton.publishing import config_differences
from .target import Place, Use

NEEDS_GPU = ("tensorrt", "tensorrt_plan", "tensorrtllm", "dali")
HARMLESS = ("version_policy", "dynamic_batching", "instance_group", "model_warmup", "response_cache")
"""Fields in which versions may differ and still be served beside each other under the configuration of one of them."""


def refuse(findings: Collection[Finding], what: str, where: str) -> list[str]:
    """Raise UsageError when there are errors among them; return the warnings as sentences."""
    bad = errors(findings)
    if bad:
        raise UsageError(
            what,
            where=where,
            why="".join(
                f"\n    {each.where or where}: {each.what}" + (f" ({each.why})" if each.why else "") for each in bad
            ),
            do="; ".join(dict.fromkeys(each.do for each in bad if each.do))
            or "correct the entry and register it again; `tidegate model check` shows the same",
        )
    return [f"{each.where}: {each.what}" if each.where else each.what for each in findings]


def check_staged(staged: Path, place: Place, repository: Repository) -> list[Finding]:
    """Check an entry that was fetched, for the servers that read it there, and beside the models that are there."""
    entry = read_entry(staged, place.model)
    models, missing = None, set()
    if entry.config is not None and entry.config.ensemble_scheduling.step:
        models = {}
        steps, there = {step.model_name for step in entry.config.ensemble_scheduling.step}, set(repository.models())
        missing = steps - there
        for name in steps & there:
            if (text := repository.config(name)) is not None:
                models[name] = parse_config(text, f"{repository.where}/{name}/{CONFIG}")
    has = [set(use.home.server.backends) for use in place.uses]
    backends = set.intersection(*has) if all(has) else None  # where one does not say, it is not known
    gpu = all(use.pool.gpu for use in place.uses)
    found = check_entry(entry, backends=backends, gpu=gpu, models=models)
    first = {f"there is no model '{name}'": f"deploy it first: tidegate deploy {name}" for name in missing}
    return [replace(each, do=first[each.what]) if each.what in first else each for each in found]


def check_fits(place: Place, config: ModelConfig, manifest: Manifest, peak: int) -> list[Finding]:
    """Check an entry against the pools that are to serve it; `peak` versions are loaded at one time."""
    found: list[Finding] = []
    for use in place.uses:
        found += _on_gpu(use, config)
        found += _in_memory(use, manifest, peak)
    return list(dict.fromkeys(found))


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


def _on_gpu(use: Use, config: ModelConfig) -> list[Finding]:
    if use.pool.gpu:
        return []
    where = f"{use.home.plane.name}/{use.home.server.name}/{use.pool.name}"
    do = "ask the platform admin for a pool with a GPU, or let it run on the processor"
    if config.backend in NEEDS_GPU or config.platform in NEEDS_GPU:
        which = config.backend or config.platform
        return [error(f"the backend {which} wants a GPU, and the pool {where} has none", CONFIG, do=do)]
    return []


def _in_memory(use: Use, manifest: Manifest, peak: int) -> list[Finding]:
    model, pool = use.home.model, use.pool
    room = pool.capacity_bytes or pool.memory_bytes
    if room is None:
        return []
    where = f"{use.home.plane.name}/{use.home.server.name}/{pool.name}"
    size = sum(file.size for file in manifest.files if file.path.startswith(f"{ENTRY_VERSION}/"))
    needs = model.footprint_bytes if model.footprint_bytes is not None else int(size * DISK_FACTOR)
    how = "declared" if model.footprint_bytes is not None else "estimated from its files"
    if needs > room:
        return [
            error(
                f"it needs {_mib(needs)} ({how}), and the pool {where} has room for {_mib(room)}",
                "",
                do="make the model smaller, or ask the platform admin for a pool of a larger slice",
            )
        ]
    beside = _beside(use) if pool.loading == "preload" else 0
    if needs * peak + beside > room:
        others = f", beside the {_mib(beside)} that the pool's other models are declared to need" if beside else ""
        why = "Triton loads every version again, beside itself, when the configuration or an alias changes"
        return [
            warning(
                f"while it comes in, {peak} versions are loaded at one time, which may need {_mib(needs * peak)} "
                f"({how} for each){others}, and the pool {where} has room for {_mib(room)}",
                "",
                why,
                "ask the platform admin for a larger slice, or, where an alias routes the model, to let the newest "
                "version be called instead",
            )
        ]
    return []


def _beside(use: Use) -> int:
    """Return the bytes that the other models of a pool, which has them all at one time, are declared to need."""
    mine = use.home.model
    return sum(
        each.footprint_bytes or 0
        for each in use.home.plane.models
        if (each.server, each.pool) == (mine.server, mine.pool) and each.name != mine.name
    )


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
